"""The circuit between two texts of a file: Python's answers about it, because a page has no gradients."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from clearhead.analysis.circuits import Edge, patched_edges
from clearhead.config import LanguageHead, TaggingHead
from clearhead.explorer.answering.circuits import (
    CircuitsQuestion,
    EdgesQuestion,
    FaithfulnessQuestion,
    Studied,
    circuits,
    edges,
    faithfulness,
    made_of,
    studied_of,
)  # fmt: skip
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.passes import LOCK, Pass
from clearhead.explorer.answering.requests import RunRequest
from clearhead.explorer.export.held import Answers, Held

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""The points of the faithfulness curve that a page asks for (ui/src/views/circuits/circuits.svelte.ts)."""
TERMS = 8
"""The terms of an edge that a page lists."""


def circuit(opened: Opened, run: RunRequest, other: RunRequest, *, steps: Sequence[int], most: int) -> Answers:
    """The answers about the circuit of a run against another.

    At the position where the page begins and at the first whose tokens differ. `steps` are those of integrated
    gradients, each with the `most` strongest edges. Raises UserError for texts of different lengths.
    """
    against = run.model_copy(update={"text": other.text, "image": other.image})
    places = _positions(opened, run, other)
    answers = (one for place in places for one in _answers(opened, run, against, place, steps, most))
    return Answers.of(run, answers, corrupt=against)


def _answers(
    opened: Opened, run: RunRequest, other: RunRequest, place: dict[str, int], steps: Sequence[int], most: int
) -> Iterator[Held]:
    """Every question with its fields and its answer."""
    base: dict[str, Any] = {"run": run, "corrupt": other, **place}
    with LOCK:
        yield "circuits", place, circuits(opened, CircuitsQuestion(**base)).json
    for n in steps:
        asked = {**place, "steps": n}
        with LOCK:
            strongest = edges(opened, EdgesQuestion(**base, steps=n, most=most)).json
        yield "edges", asked, strongest
        for share in SHARES:
            with LOCK:
                point = faithfulness(opened, FaithfulnessQuestion(**base, steps=n, share=share)).json
            yield "faithfulness", {**asked, "share": share}, point
        with LOCK:
            studied = studied_of(opened, CircuitsQuestion(**base))
            explained = _explained(studied, studied.scored(n).top(most), n)
        for edge, said in explained:
            yield "edge", {**asked, "writer": edge.writer, "reader": edge.reader}, said


@torch.no_grad()
def _explained(studied: Studied, chosen: Sequence[Edge], steps: int) -> list[tuple[Edge, dict[str, Any]]]:
    """How the score of each edge comes about, with one pass for all of them."""
    made: list[tuple[Edge, dict[str, Any]]] = []
    found, wanted = studied.circuits, {(edge.writer, edge.reader): edge for edge in chosen}
    exact = patched_edges(found, wanted)
    names, gradients = [str(writer) for writer in found.writers], found.gradients(steps=steps).readers
    for address, change in found.changes():
        for group, gradient in zip(found.parts.groups, gradients, strict=True):
            if group.stream != address:
                continue
            first = found.place(group, len(change))[0].start
            for reader, own in zip(group.readers, gradient, strict=True):
                for i, one in enumerate(change):
                    if (pair := (names[first + i], str(reader))) in wanted:
                        made.append((wanted[pair], made_of(one, own, exact[pair], TERMS)))
    return made


def _positions(opened: Opened, run: RunRequest, other: RunRequest) -> list[dict[str, int]]:
    """The positions that a page asks about: where it begins on one text, and on two (ui/src/state/answer.svelte.ts)."""
    if not isinstance(opened.model.config.head, LanguageHead | TaggingHead):
        return [{}]
    with LOCK:
        own, others = (_last(opened.passes.get(one)) for one in (run, other))
    differs = next((i for i, (a, b) in enumerate(zip(own, others, strict=False)) if a != b), None)
    mask = opened.model.tokenizer.mask_id if opened.model.has_tokenizer else None
    begins = len(own) - 1 if opened.model.config.decoder else own.index(mask) if mask in own else 0
    return [{"position": i} for i in dict.fromkeys(i for i in (begins, differs) if i is not None)]


def _last(found: Pass) -> list[int]:
    """The ids of the last stack."""
    return [token.id for token in list(found.reading.tokens.values())[-1]]

