"""Answers that a file holds because they need the model in Python: features, and the circuit between two texts."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clearhead.analysis.features import Features
from clearhead.errors import UserError
from clearhead.explorer.answering.circuits import (
    CircuitsQuestion,
    EdgesQuestion,
    FaithfulnessQuestion,
    circuits,
    edges,
    every_edge,
    faithfulness,
)
from clearhead.explorer.answering.measures import FeaturesQuestion, features
from clearhead.explorer.answering.opened import Opened, stated
from clearhead.explorer.answering.overview import overview_of
from clearhead.explorer.answering.passes import Pass
from clearhead.explorer.answering.questions import Reply, RunRequest
from clearhead.explorer.places import places
from clearhead.progress import pieces

DIGITS = 7
"""Digits of a number: those of float32."""
Held = tuple[str, Mapping[str, Any], Any]
"""The name of a question, its fields but the runs, and the answer."""


@dataclass(frozen=True)
class Answers:
    """Answers about one run, or one against another: their entry in the file's document, and their part."""

    told: dict[str, Any]
    reply: Reply[Any]

    @classmethod
    def of(cls, run: RunRequest, answers: Iterable[Held], *, corrupt: RunRequest | None = None) -> "Answers":
        """The answers with as many digits as float32 has."""
        given = list(answers)
        told: dict[str, Any] = {"run": stated(run), "asks": list(dict.fromkeys(ask for ask, _, _ in given))}
        if corrupt is not None:
            at = dict.fromkeys(asked["position"] for _, asked, _ in given if "position" in asked)
            told |= {"corrupt": stated(corrupt)} | ({"at": list(at)} if at else {})
        return cls(told, Reply({_key(ask, asked): _short(said) for ask, asked, said in given}))


def held_answers(opened: Opened, run: RunRequest) -> Answers | None:
    """The features that are active at each position of a run, and the answers of other packages' places."""
    several = [one for one in opened.model.network.attached if isinstance(one, Features)]
    found: list[Held] = []
    for one in several:
        n = len(opened.passes.get(run).recording.value(one.address))
        for position in pieces(range(n)):
            asked = {"at": one.address, "position": position}
            found.append(("features", asked, features(opened, FeaturesQuestion(run=run, **asked)).json))
    for name, place in places().items():
        found.append((name, {}, place.answer(opened, place.question.model_validate({"run": run})).json))
    return Answers.of(run, found) if found else None


def _key(ask: str, asked: Mapping[str, Any]) -> str:
    """A question as the page's host writes it (ui/src/host/baked/held.ts)."""
    return json.dumps([ask, *map(list, sorted(asked.items()))], separators=(",", ":"), ensure_ascii=False)


def _short(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.{DIGITS}g}")
        case dict():
            return {name: _short(one) for name, one in value.items()}
        case list():
            return [_short(one) for one in value]
        case _:
            return value


SIZES, MOST = (10, 25, 60, 150, 400, 1000), 2500
"""The sizes of circuits that a page asks for, up to half of the edges (ui/src/views/circuits/circuits.svelte.ts)."""
STEPS, EDGES = (0, 5), 300
"""The steps of integrated gradients that a page offers, and the edges that a file lists at most."""
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
    answers = (one for place in places for one in pieces(_answers(opened, run, against, place, steps, most)))
    return Answers.of(run, answers, corrupt=against)


def _answers(
    opened: Opened, run: RunRequest, other: RunRequest, place: dict[str, int], steps: Sequence[int], most: int
) -> Iterator[Held]:
    """Every question with its fields and its answer."""
    base: dict[str, Any] = {"run": run, "corrupt": other, **place}
    yield "circuits", place, circuits(opened, CircuitsQuestion(**base)).json
    for n in steps:
        asked = {**place, "steps": n}
        strongest = edges(opened, EdgesQuestion(**base, steps=n, most=most)).json
        yield "edges", asked, strongest
        half = -(-strongest["total"] // 2)
        for size in (*(size for size in SIZES if size < half), min(half, MOST)):
            share = size / strongest["total"]
            point = faithfulness(opened, FaithfulnessQuestion(**base, steps=n, share=share)).json
            yield "faithfulness", {**asked, "share": share}, point
        explained = list(every_edge(opened, EdgesQuestion(**base, steps=n, most=most), terms=TERMS))
        for edge, said in explained:
            yield "edge", {**asked, "writer": edge.writer, "reader": edge.reader}, said


def _positions(opened: Opened, run: RunRequest, other: RunRequest) -> list[dict[str, int]]:
    """The positions that a page asks about: where it begins on one text, and on two (ui/src/state/answer.svelte.ts)."""
    if not opened.model.config.answers_by_position:
        return [{}]
    own, others = (_last(opened.passes.get(one)) for one in (run, other))
    differs = next((i for i, (a, b) in enumerate(zip(own, others, strict=False)) if a != b), None)
    mask = opened.model.tokenizer.mask_id if opened.model.has_tokenizer else None
    begins = len(own) - 1 if opened.model.config.decoder else own.index(mask) if mask in own else 0
    decided = overview_of(opened, run, None).position
    return [{"position": i} for i in dict.fromkeys(i for i in (decided, begins, differs) if i is not None)]


def _last(found: Pass) -> list[int]:
    """The ids of the last stack."""
    return [token.id for token in list(found.reading.tokens.values())[-1]]
