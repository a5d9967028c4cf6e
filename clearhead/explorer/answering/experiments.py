"""Answers with experiments that say something about the opened model: a second text, and effects over sets of pairs."""

import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from typing_extensions import TypedDict

from clearhead.analysis.ablation import Ablations
from clearhead.analysis.passes import repeated
from clearhead.capture import Effect, Prompt, over_prompts, prompts_in
from clearhead.capture.prompts import EXACT, How
from clearhead.capture.report import report
from clearhead.config.heads import ClassificationHead
from clearhead.data.prompts import BUNDLED
from clearhead.errors import UserError
from clearhead.explorer.answering.data_sets import DataSet, has_data
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.overview import is_exact, overview_of
from clearhead.explorer.answering.questions import Asked, BoundedText, OfRun, Reply, SmallCount, Whole
from clearhead.trace import Address

PLACES, MOST = 6, 32
"""Words of a text that may be replaced, and the most texts that are tried for one."""
CLEAR, SURE, ALIKE = 0.3, 0.5, 0.3
"""From this share of an answer on, a text has another answer clearly, and surely; from this cosine on, two words are
alike."""
TOLD = 12
"""Texts of each kind that are told."""
WORD = re.compile(r"\w+|[^\w\s]")


class ProposalQuestion(OfRun):
    """Asks for texts that differ from the run's in one word, and whether they have its answer."""

    position: Whole | None = None
    """That of the answer. None: the overview's."""


class ProposalReply(TypedDict):
    """Texts with another word in one place, and the position of the answer."""

    position: int
    other: list[str]
    """Those with another answer, one, or else all: first those that differ clearly, and the word most alike."""
    same: list[str]
    """The run's text, and others with its answer."""


def proposes(opened: Opened) -> bool:
    """Returns True if a word of a text can be another, and the answers compared."""
    return is_exact(opened) and has_data(opened)


def propose(opened: Opened, question: ProposalQuestion) -> Reply[ProposalReply]:
    """Puts words of the texts at hand in the place that matters most, and compares the answers.

    That is the word without which an encoder says something else, or what the strongest weight of a decoder reads.
    Words that are alike by the cosine of their embeddings come first, so that a text makes sense; for a classifier they
    may stand elsewhere in the texts.
    """
    found, text = opened.passes.get(question.run), question.run.text
    inputs, (stack, tokens) = found.reading.inputs, next(iter(found.recording.tokens.items()))
    seen = overview_of(opened, question.run, question.position)
    if found.model.config.decoder is None:
        parts = sorted(seen.parts, key=lambda one: -one.moved)
        keys = [Address.parse(one.at.split()[0]).index[0][1] for one in parts]
    else:
        paths = (Address.parse(one.at) for one in seen.curves)
        keys = [dict(at.index)["s"] for at in paths if at.path.startswith(stack) or "cross" in at.path]
    order = dict.fromkeys([*keys, *range(len(tokens))])
    is_free = isinstance(found.model.config.head, ClassificationHead)
    table = dict(found.model.network.named_parameters()).get(f"{stack}.embed.tokens.weight")

    def variants(at: int) -> list[tuple[int, float, str, int]]:
        every = [one for one in _variants(opened, text, tokens[at].span) if is_free or one[0] < 2]
        own, ids = inputs[0].ids[0, at], torch.tensor([token for *_, token in every], dtype=torch.long)
        alike = ids * 0.0 if table is None else F.cosine_similarity(table[own], table[ids], dim=-1)
        ranked = [
            (int(rank == 2 or x < ALIKE) if is_free else rank, -x, other, token)
            for x, (rank, other, token) in zip(alike.tolist(), every, strict=True)
        ]
        return sorted(ranked)[:MOST]

    places = [(at, some) for at in order if (some := variants(at))]
    if not places:
        raise UserError("propose: expected a word that another can replace, got none; type a second text")
    read = partial(Ablations, found.model.network, position=seen.position, vectors=found.model.sentences.vectors)
    own, rows = read(inputs), list[tuple[bool, int, bool, float, str, int]]()
    clean = own.expected.reshape(1, -1)
    for at, some in sorted(places, key=lambda one: (one[0] == seen.position, not is_free and one[1][0][0]))[:PLACES]:
        batch = [repeated(one, len(some)) for one in inputs]
        batch[0].ids[:, at] = torch.tensor([token for *_, token in some])
        logs = read(batch, metric=own.metric).expected.reshape(len(some), -1)
        best, moved = logs.max(-1), (clean.exp() - logs.exp()).abs().sum(-1)
        alike, p = best.indices == clean.argmax(), 1.0 if seen.is_vector else best.values.exp()
        vague = (moved < CLEAR) | ~alike & (p < SURE)
        each = zip(alike.tolist(), vague.tolist(), moved.tolist(), best.indices.tolist(), some, strict=True)
        rows = sorted(
            (is_same, rank, is_vague, -far if is_same and not seen.is_vector else by, other, answer)
            for is_same, is_vague, far, answer, (rank, by, other, _) in each
        )
        if seen.is_vector or not alike.all():
            break
    first, rank, *_, answer = rows[0]
    other = [row[-2] for row in rows if row[:2] == (first, rank) and (seen.is_vector or row[-1] == answer)]
    same = [row[-2] for row in rows if row[:2] == (not first, rank)]
    return Reply({"position": seen.position, "other": other[:TOLD], "same": [text, *same[::-1]][:TOLD]})


def _variants(opened: Opened, text: str, span: tuple[int, int] | None) -> Iterator[tuple[int, str, int]]:
    """Texts with another token in place of one word, each with its rank and the token.

    0: texts at hand have the word between the same two words. 1: beside one of them; at the end, behind the same one.
    2: texts at hand have the word elsewhere.
    """
    start, end = span or (0, 0)
    word, tokenizer, ranks = text[start:end].strip(), opened.model.tokenizer, dict[str, int]()
    start = end - len(word)
    if not word.isalnum() or (text[:start][-1:] + text[end:][:1]).strip().isalnum():
        return  # It is a part of a word.
    before, after = ["", *WORD.findall(text[:start])][-1], [*WORD.findall(text[end:]), ""][0]
    for one in opened.kept(DataSet, lambda: DataSet(opened)).texts()[0]:
        row = ["", *WORD.findall(one if isinstance(one, str) else one[0]), ""]
        for a, b, c in zip(row, row[1:], row[2:], strict=False):
            ranks[b] = min(ranks.get(b, 2), (a != before) + (c != after if after else 1 + (a != before)))
    own = tokenizer.encode(text)
    for other, rank in ranks.items():
        variant = text[:start] + other + text[end:]
        ids = tokenizer.encode(variant)
        changed = [b for a, b in zip(own, ids, strict=False) if a != b]
        if len(ids) == len(own) and len(changed) == 1 and other[0].isupper() == word[0].isupper():
            yield rank, variant, changed[0]


class PromptsQuestion(Asked):
    """Asks for effects over a set of prompts (clearhead/capture/prompts.py)."""

    pairs: BoundedText
    """The name of a bundled set, a template (TOML), or a table with tabs and a line of names."""
    how: How
    sites: BoundedText = "heads"
    n: SmallCount = 50
    """The most pairs."""
    target: BoundedText | None = None
    """What the decoder of an encoder-decoder has written so far, for pairs that say none."""
    position: Whole | None = None
    report: bool = False
    """Whether the report is wanted too."""


class PromptsReply(TypedDict):
    """The effects. The first two are the numbers themselves, clean and corrupt, of a model with logits."""

    effects: list[Effect]
    n: int
    example: tuple[str, str]
    """The first pair."""
    report: str | None


def prompts(opened: Opened, question: PromptsQuestion) -> Reply[PromptsReply]:
    """The mean of each effect over the pairs."""
    how: dict[str, Any] = question.model_dump(include={"how", "sites", "position"})
    some = [replace(one, target=one.target or question.target) for one in _read(question.pairs, question.n)]
    found = over_prompts(opened.model, some, **how)
    about = {"model": opened.name, "exact": EXACT, **how}
    file = report("prompts.html", opened.model, some, found, about) if question.report else None
    return Reply({"effects": [*map(asdict, found)], "n": len(some), "example": some[0].texts, "report": file})


def _read(text: str, n: int) -> list[Prompt]:
    """The prompts of a bundled set, or of the text of a file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / ("pairs.toml" if "[slots]" in text else "pairs.tsv")
        path.write_text(text, encoding="utf-8")
        return prompts_in(text if text in BUNDLED else path, n=n)[:n]
