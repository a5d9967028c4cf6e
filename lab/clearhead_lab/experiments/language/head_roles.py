"""Heads of a real encoder, and the roles that documents give them: who does what, with what, of what, next to what."""

from collections.abc import Iterator, Sequence
from statistics import mode

import torch
from torch import Tensor

from clearhead.api import Model, load
from clearhead_lab.datasets import Word, datasets, read_dependencies
from clearhead_lab.experiment import Row
from clearhead_lab.language import estimate, looks

GRAMMAR = {
    "subject": "nsubj",
    "object": "obj",
    "instrument or place": "obl",
    "noun of a noun": "nmod",
    "preposition": "case",
}
"""The roles of the document's Table 8 as relations of Universal Dependencies, each between a word and its head."""
NEIGHBOUR, ENDS, PLACE = "word before", "last and first word", "subject and place"
TWO = {PLACE: "obl", "subject and object": "obj"}
"""Two things of one verb: its subject, and a word of this relation."""
PUNCTUATION, SPECIAL = "punctuation", "special tokens"
SHORTEST, LONGEST = 7, 20
CAT = "The DET 1 det, cat NOUN 2 nsubj, sat VERB -1 root, on ADP 5 case, the DET 5 det, mat NOUN 2 obl"
Pair = tuple[int, int]


def pairs(sentence: Sequence[Word]) -> Iterator[tuple[str, Pair]]:
    """The role and the two words of each pair that a head could join."""
    of_verbs = {(word.head, word.relation): i for i, word in enumerate(sentence)}
    for i, word in enumerate(sentence):
        for role, relation in TWO.items():
            if word.relation == "nsubj" and (word.head, relation) in of_verbs:
                yield role, (i, of_verbs[word.head, relation])
        for role, relation in GRAMMAR.items():
            if word.relation == relation and word.head >= 0:
                yield role, (i, word.head)
        if i:
            yield NEIGHBOUR, (i, i - 1)
    yield ENDS, (len(sentence) - 1, 0)


def found(model: Model, sentences: Sequence[Sequence[Word]]) -> dict[str, tuple[Tensor, list[int]]]:
    """By role: n 2h, whether each head's largest weight joins the words, from one or from the other; the distances."""
    joined: dict[str, list[Tensor]] = {}
    apart: dict[str, list[int]] = {}
    for sentence in sentences:
        look, n = looks(model, [word.text for word in sentence]), len(sentence)
        weights = torch.stack([torch.stack([look(a, b) * (a != b) for b in range(n)]) for a in range(n)])
        most = weights.argmax(1)
        for role, (a, b) in pairs(sentence):
            joined.setdefault(role, []).append(torch.cat([most[a] == b, most[b] == a]))
            apart.setdefault(role, []).append(b - a)
    return {role: (torch.stack(some).double(), apart[role]) for role, some in joined.items()}


def marked(model: Model, sentences: Sequence[Sequence[Word]]) -> dict[str, Tensor]:
    """By kind: n h, the weight of each head from a word to the punctuation of its sentence, or to special tokens."""
    kinds: dict[str, list[Tensor]] = {PUNCTUATION: [], SPECIAL: []}
    for sentence in sentences:
        look = looks(model, [word.text for word in sentence])
        marks = [i for i, word in enumerate(sentence) if word.relation == "punct"]
        for i in {*range(len(sentence))} - {*marks}:
            kinds[SPECIAL].append(look(i, -1))
            if marks:
                kinds[PUNCTUATION].append(torch.stack([look(i, mark) for mark in marks]).sum(0))
    return {kind: torch.stack(some) for kind, some in kinds.items() if some}


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """How often the head that is best in some sentences joins such words in others, and how often one distance does.

    The head, its direction and the distance are chosen in the training part of the treebank (Clark et al. 2019).
    """
    model, draw = load(datasets()["sentence-encoder"].path(), dtype=torch.float32), torch.Generator().manual_seed(seed)
    drawn = list[list[Sequence[Word]]]()
    for split in ("train", "test"):
        some = [one for one in read_dependencies(split) if SHORTEST <= len(one) <= LONGEST]
        drawn.append([some[i] for i in torch.randperm(len(some), generator=draw)[: 20 if quick else 200]])
    known, new = (found(model, sentences) for sentences in drawn)
    best = {role: int(known[role][0].mean(0).argmax()) for role in new if role in known}
    for role, head in best.items():
        right, distances = new[role][0][:, head], new[role][1]
        by_distance = torch.tensor([one == mode(known[role][1]) for one in distances]).double()
        ahead = estimate(right - by_distance)["low"]
        yield Row({"role": role}, estimate(right) | {"distance": by_distance.mean().item(), "ahead": ahead})
    before, after = (marked(model, sentences) for sentences in drawn)
    for kind, weights in after.items():
        yield Row({"role": kind}, estimate(weights[:, before[kind].mean(0).argmax()]))
    cat = [Word(text, tag, int(head), relation) for text, tag, head, relation in map(str.split, CAT.split(", "))]
    joins = {role: hits[:, best[role]].mean().item() for role, (hits, _) in found(model, [cat]).items() if role in best}
    yield Row({"role": "the cat sat on the mat"}, {role: joins[role] for role in ("subject", "preposition", PLACE)})
