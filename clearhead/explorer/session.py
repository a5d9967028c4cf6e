"""`Session`: a model opened in a page, and the handlers of the page's questions (ui/src/core/protocol.ts)."""

from collections.abc import Mapping

from pydantic import JsonValue

from clearhead.errors import UserError
from clearhead.explorer.answering.answers import About
from clearhead.explorer.answering.circuits import circuits, edge, edges, faithfulness
from clearhead.explorer.answering.data_sets import compare, differs, examples, has_data
from clearhead.explorer.answering.experiments import prompts, propose, proposes
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
from clearhead.explorer.answering.overview import is_exact, overview
from clearhead.explorer.answering.passes import LOCK
from clearhead.explorer.answering.questions import Asked, OfRun, Reply, checked
from clearhead.explorer.answering.search_tree import generate
from clearhead.explorer.answering.values import check, description, run, texts, values, weights
from clearhead.explorer.answering.words import tokenize
from clearhead.explorer.export.page import export
from clearhead.explorer.lru_cache import LRUCache
from clearhead.explorer.places import Handler, places
from clearhead.explorer.turns import ranking
from clearhead.progress import cached, pausing


def about(opened: Opened, question: Asked) -> Reply[About]:  # noqa: ARG001 - it has no fields
    """The description of the model, and the questions that this session answers."""
    needs = {
        "examples": has_data,
        "difference": differs,
        "overview": is_exact,
        "propose": proposes,
        "prompts": proposes,
    }
    answers = [ask for ask in (*HANDLERS, *places()) if ask not in needs or needs[ask](opened)]
    return Reply({**description(opened), "answers": answers})


HANDLERS: dict[str, Handler] = {
    "about": Handler(about),
    "run": Handler(run),
    "values": Handler(values),
    "weights": Handler(weights),
    "qk": Handler(qk),
    "ov": Handler(ov),
    "patching": Handler(patching, rank=2),
    "check": Handler(check, rank=1),
    "texts": Handler(texts),
    "tokenize": Handler(tokenize),
    "effects": Handler(effects, rank=2),
    "statistics": Handler(statistics, rank=2),
    "lens": Handler(lens, rank=1),
    "overview": Handler(overview, rank=2),
    "attribution": Handler(attribution, rank=1),
    "circuits": Handler(circuits, rank=1),
    "edges": Handler(edges, rank=1),
    "faithfulness": Handler(faithfulness, rank=1),
    "edge": Handler(edge, rank=1),
    "difference": Handler(compare, rank=2),
    "examples": Handler(examples, rank=2),
    "propose": Handler(propose, rank=1),
    "prompts": Handler(prompts, rank=2),
    "neighbours": Handler(neighbours),
    "features": Handler(features),
    "direction": Handler(direction, rank=1),
    "generate": Handler(generate, rank=1),
    "export": Handler(export, rank=2),
}
"""By the `ask` of a question."""
CHANGING = ("about", "examples", "export", "texts")
"""Questions that may be answered in another way when they are asked again; so may those of other packages."""


REPLIES = 64 << 20
"""Bytes of the kept replies, those asked for last."""


class Session(Opened):
    """A model opened in a page. Stateless: every question specifies its forward pass in full."""

    @cached
    def _replies(self) -> LRUCache[bytes]:
        return LRUCache(1024, n_bytes=REPLIES, size=len)

    @cached
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
        rank = 2 if isinstance(asked, OfRun) and asked.later else handler.rank
        key = f"{ask} {asked.model_dump_json(by_alias=True)}"
        with ranking(rank), pausing(LOCK.give_way), LOCK:
            if ask in CHANGING or ask not in HANDLERS:
                return handler.answer(self, asked).encode()
            return self._replies.get(key, lambda: handler.answer(self, asked).encode())
