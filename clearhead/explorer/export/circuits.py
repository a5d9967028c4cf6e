"""The circuit between two texts of a file: Python's answers about it, because a page has no gradients."""

from collections.abc import Iterator, Sequence
from typing import Any

from clearhead.config import LanguageHead, TaggingHead
from clearhead.errors import UserError
from clearhead.explorer.answering.circuits import (
    CircuitsQuestion,
    EdgesQuestion,
    FaithfulnessQuestion,
    circuits,
    edges,
    every_edge,
    faithfulness,
)  # fmt: skip
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.passes import LOCK, Pass
from clearhead.explorer.answering.requests import RunRequest
from clearhead.explorer.export.held import Answers, Held

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""The points of the faithfulness curve that a page asks for (ui/src/views/circuits/circuits.svelte.ts)."""
STEPS, EDGES = (0, 5), 300
"""The steps of integrated gradients that a page offers, and the edges that it draws at most."""
STEPS_LARGE, EDGES_LARGE = (0,), 60
"""The same of a larger model, whose circuit takes longer than everything else in the file."""
TERMS = 8
"""The terms of an edge that a page lists."""


def held_circuit(
    opened: Opened, run: RunRequest, other: RunRequest, *, is_small: bool, is_asked: bool
) -> Answers | None:
    """The circuit of a run against another; None if the two do not compare.

    Raises UserError in that case, too, if the circuit was asked for.
    """
    if (other.text, other.image) == (run.text, run.image) or other.step != run.step:
        return None
    steps, most = (STEPS, EDGES) if is_small else (STEPS_LARGE, EDGES_LARGE)
    try:
        return circuit(opened, run, other, steps=steps, most=most)
    except UserError:
        if is_asked:
            raise
        return None


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
            explained = list(every_edge(opened, EdgesQuestion(**base, steps=n, most=most), terms=TERMS))
        for edge, said in explained:
            yield "edge", {**asked, "writer": edge.writer, "reader": edge.reader}, said


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
