"""`Session`: a model opened in a page, and the handlers of the page's questions (ui/src/core/protocol.ts)."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import JsonValue

from clearhead.errors import UserError
from clearhead.explorer.answering.circuits import (
    CircuitsQuestion,
    EdgeQuestion,
    EdgesQuestion,
    FaithfulnessQuestion,
    circuits,
    edge,
    edges,
    faithfulness,
)  # fmt: skip
from clearhead.explorer.answering.data_sets import (
    DifferenceQuestion,
    ExamplesQuestion,
    compare,
    differs,
    examples,
    has_data,
)
from clearhead.explorer.answering.measures import (
    AttributionQuestion,
    DirectionQuestion,
    EffectsQuestion,
    FeaturesQuestion,
    LensQuestion,
    NeighboursQuestion,
    OVQuestion,
    PatchingQuestion,
    QKQuestion,
    StatisticsQuestion,
    attribution,
    direction,
    effects,
    features,
    lens,
    neighbours,
    ov,
    patching,
    qk,
    statistics,
)  # fmt: skip
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.passes import LOCK
from clearhead.explorer.answering.questions import Asked, OfRun, Reply, checked
from clearhead.explorer.answering.search_tree import GenerateQuestion, generate
from clearhead.explorer.answering.values import (
    TextsQuestion,
    ValuesQuestion,
    WeightsQuestion,
    about,
    check,
    run,
    texts,
    values,
    weights,
)
from clearhead.explorer.answering.words import TokenizeQuestion, tokenize
from clearhead.explorer.export.page import ExportQuestion, export
from clearhead.explorer.turns import sweeping
from clearhead.progress import pausing

Q = TypeVar("Q", bound=Asked)


@dataclass(frozen=True)
class Handler(Generic[Q]):
    """The fields of a question, and the function that answers it."""

    question: type[Q]
    answer: Callable[[Opened, Q], Reply]
    sweeps: bool = False
    """Whether it waits for all other questions, before it begins and between two pieces of its work."""
    locks: bool = True
    """Whether to hold the lock from beginning to end, but for pauses. Otherwise the function takes it."""


HANDLERS: dict[str, Handler[Any]] = {
    "about": Handler(Asked, lambda opened, _: Reply({**about(opened), "answers": _answers(opened)})),
    "run": Handler(OfRun, run),
    "values": Handler(ValuesQuestion, values),
    "weights": Handler(WeightsQuestion, weights),
    "qk": Handler(QKQuestion, qk),
    "ov": Handler(OVQuestion, ov),
    "patching": Handler(PatchingQuestion, patching, sweeps=True),
    "check": Handler(OfRun, check),
    "texts": Handler(TextsQuestion, texts),
    "tokenize": Handler(TokenizeQuestion, tokenize),
    "effects": Handler(EffectsQuestion, effects, sweeps=True),
    "statistics": Handler(StatisticsQuestion, statistics, sweeps=True),
    "lens": Handler(LensQuestion, lens, sweeps=True),
    "attribution": Handler(AttributionQuestion, attribution),
    "circuits": Handler(CircuitsQuestion, circuits),
    "edges": Handler(EdgesQuestion, edges),
    "faithfulness": Handler(FaithfulnessQuestion, faithfulness),
    "edge": Handler(EdgeQuestion, edge),
    "difference": Handler(DifferenceQuestion, compare, sweeps=True),
    "examples": Handler(ExamplesQuestion, examples, sweeps=True),
    "neighbours": Handler(NeighboursQuestion, neighbours),
    "features": Handler(FeaturesQuestion, features),
    "direction": Handler(DirectionQuestion, direction),
    "generate": Handler(GenerateQuestion, generate),
    "export": Handler(ExportQuestion, export, sweeps=True, locks=False),
}
"""By the `ask` of a question."""


def _answers(opened: Opened) -> list[str]:
    """The questions that this session answers: some need texts to look through, or a second model."""
    needs = {"examples": has_data, "difference": differs}
    return [ask for ask in HANDLERS if ask not in needs or needs[ask](opened)]


class Session(Opened):
    """A model opened in a page. Stateless: every question specifies its forward pass in full."""

    def answer(self, question: Mapping[str, JsonValue]) -> bytes:
        """The reply as one safetensors file. Raises UserError, in one line, if the question cannot be answered."""
        fields = dict(question) if isinstance(question, Mapping) else {}
        ask = fields.pop("ask", None)
        if not isinstance(ask, str) or ask not in HANDLERS:
            raise UserError(f"ask: expected one of {', '.join(HANDLERS)}, got {str(ask)[:40]!r}; try about")
        handler = HANDLERS[ask]
        asked = checked(handler.question, fields)
        turn = LOCK if handler.locks else nullcontext()
        waits = handler.sweeps or (isinstance(asked, OfRun) and asked.later)
        with sweeping() if waits else nullcontext(), pausing(LOCK.give_way), turn:
            reply = handler.answer(self, asked)
        return reply.encode()
