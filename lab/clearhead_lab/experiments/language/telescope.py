"""Saw with a telescope, or the astronomer with a telescope: what the heads of an encoder make of both readings."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead.api import Model, load
from clearhead_lab.classifiers import predicted, standardised
from clearhead_lab.datasets import Word, datasets, read_dependencies
from clearhead_lab.experiment import Row
from clearhead_lab.language import estimate, looks

SENTENCE: list[str] = [*"The man saw the astronomer with a telescope .".split()]
Phrase = tuple[list[str], tuple[int, int, int, int], int]
"""The words, the places of verb, object, preposition and its noun, and 1 if the phrase belongs to the verb."""


def phrases(sentence: list[Word]) -> Iterator[Phrase]:
    """The phrases of a preposition right after an object, which may belong to the verb or to the object."""
    for at, word in enumerate(sentence):
        before = [i for i, one in enumerate(sentence[:at]) if one.head == at and one.relation == "case" and i]
        if word.relation not in ("nmod", "obl") or len(before) != 1:
            continue
        thing = before[0] - 1
        verb = sentence[thing].head
        if sentence[thing].relation == "obj" and 0 <= verb < thing and word.head in (verb, thing):
            yield [one.text for one in sentence], (verb, thing, before[0], at), int(word.head == verb)


def read(model: Model, found: list[Phrase]) -> tuple[Tensor, Tensor, Tensor]:
    """n p 2 h: the weights from preposition and noun to verb and object; n d: the four words' rows; n: the answers."""
    seen: list[Tensor] = []
    rows: list[Tensor] = []
    table = model.network.last_stack.table.weight.detach()
    for words, places, _ in found:
        look = looks(model, words)
        seen.append(torch.stack([look(asks, to) for asks in places[2:] for to in places[:2]]).view(2, 2, -1))
        ids = [model.tokenizer.encode(words[place])[:1] for place in places]
        rows.append(table[torch.tensor(ids)].flatten())
    return torch.stack(seen), torch.stack(rows), torch.tensor([belongs for *_, belongs in found])


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """The weights in the document's sentence; then how often the phrase's head is told in new sentences."""
    model, draw = load(datasets()["sentence-encoder"].path(), dtype=torch.float32), torch.Generator().manual_seed(seed)
    weights = read(model, [(SENTENCE, (2, 4, 5, 7), 1)])[0][0]
    for asks, name in enumerate(("with", "telescope")):
        for to, word in enumerate(("saw", "astronomer")):
            best = weights[asks, to].masked_fill(weights[asks, to] < weights[asks, 1 - to], 0).max().item()
            yield Row({"reads": f"a head, from {name}", "to": word}, {"weight": best})
    data: list[tuple[Tensor, Tensor, Tensor]] = []
    for split, n in (("train", 60 if quick else 600), ("test", 40 if quick else 250)):
        found = [one for sentence in read_dependencies(split) if len(sentence) <= 40 for one in phrases(sentence)]
        data.append(read(model, [found[i] for i in torch.randperm(len(found), generator=draw)[:n]]))
    (seen, rows, belongs), (new, new_rows, answers) = data
    right = {"always the same": answers == belongs.mode().values}
    told = [(one[:, :, 0] > one[:, :, 1]).flatten(1).int() for one in (seen, new)]
    best = (told[0] == belongs[:, None]).double().mean(0).argmax()
    right["the best head"] = told[1][:, best] == answers
    for name, one, other in (("all heads", seen, new), ("the four words", rows, new_rows)):
        a, b = standardised(one.flatten(1).numpy(), other.flatten(1).numpy())
        right[name] = torch.tensor(predicted(a, belongs.numpy(), b, strength=0.01)) == answers
    for name, one in right.items():
        ahead = {f"less {other}": estimate(one.double() - two.double())["low"] for other, two in right.items()}
        yield Row({"reads": name}, estimate(one) | ahead)
