"""`Session`: a model opened in a page, and the handlers of the page's questions (ui/src/core/protocol.ts)."""

from collections.abc import Mapping
from contextlib import nullcontext
from functools import cached_property

from pydantic import JsonValue

from clearhead.errors import UserError
from clearhead.explorer.answering.answers import About
from clearhead.explorer.answering.circuits import circuits, edge, edges, faithfulness
from clearhead.explorer.answering.data_sets import compare, differs, examples, has_data
from clearhead.explorer.answering.measures import (
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
)
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.overview import overview
from clearhead.explorer.answering.passes import LOCK
from clearhead.explorer.answering.questions import Asked, OfRun, Reply, checked
from clearhead.explorer.answering.search_tree import generate
from clearhead.explorer.answering.values import check, description, run, texts, values, weights
from clearhead.explorer.answering.words import tokenize
from clearhead.explorer.export.page import export
from clearhead.explorer.places import Handler, places
from clearhead.explorer.turns import sweeping
from clearhead.progress import pausing


def about(opened: Opened, question: Asked) -> Reply[About]:  # noqa: ARG001 - it has no fields
    """The description of the model, and the questions that this session answers."""
    needs = {"examples": has_data, "difference": differs}
    answers = [ask for ask in (*HANDLERS, *places()) if ask not in needs or needs[ask](opened)]
    return Reply({**description(opened), "answers": answers})


HANDLERS: dict[str, Handler] = {
    "about": Handler(about),
    "run": Handler(run),
    "values": Handler(values),
    "weights": Handler(weights),
    "qk": Handler(qk),
    "ov": Handler(ov),
    "patching": Handler(patching, sweeps=True),
    "check": Handler(check),
    "texts": Handler(texts),
    "tokenize": Handler(tokenize),
    "effects": Handler(effects, sweeps=True),
    "statistics": Handler(statistics, sweeps=True),
    "lens": Handler(lens, sweeps=True),
    "overview": Handler(overview, sweeps=True),
    "attribution": Handler(attribution),
    "circuits": Handler(circuits),
    "edges": Handler(edges),
    "faithfulness": Handler(faithfulness),
    "edge": Handler(edge),
    "difference": Handler(compare, sweeps=True),
    "examples": Handler(examples, sweeps=True),
    "neighbours": Handler(neighbours),
    "features": Handler(features),
    "direction": Handler(direction),
    "generate": Handler(generate),
    "export": Handler(export, sweeps=True),
}
"""By the `ask` of a question."""


class Session(Opened):
    """A model opened in a page. Stateless: every question specifies its forward pass in full."""

    @cached_property
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers of this package, and the places of other packages."""
        return {**places(), **HANDLERS}

    def answer(self, question: Mapping[str, JsonValue]) -> bytes:
        """The reply as one safetensors file. Raises UserError, in one line, if the question cannot be answered."""
        fields = dict(question) if isinstance(question, Mapping) else {}
        ask = fields.pop("ask", None)
        if not isinstance(ask, str) or ask not in self.handlers:
            raise UserError(f"ask: expected one of {', '.join(self.handlers)}, got {str(ask)[:40]!r}; try about")
        handler = self.handlers[ask]
        asked = checked(handler.question, fields)
        waits = handler.sweeps or (isinstance(asked, OfRun) and asked.later)
        with sweeping() if waits else nullcontext(), pausing(LOCK.give_way), LOCK:
            reply = handler.answer(self, asked)
        return reply.encode()
