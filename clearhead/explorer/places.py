"""`Handler`: the answer to one question of the page. `Place`: a place of the explorer from another package.

    PLACE = Place(norms, title="Lengths of the states", script="norms.js")

stands in the entry points `clearhead.places` of the package. The page lists it beside its own places, asks `norms`
about the run that it shows, and calls the script's `draw(element, reply, ask)` with the reply.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from clearhead.errors import UserError
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.questions import Asked, OfRun, Reply
from clearhead.extensions import extensions, load_extension
from clearhead.progress import cached

__all__ = ["Handler", "OfRun", "Opened", "Place", "Reply", "places"]


@dataclass(frozen=True)
class Handler:
    """The function that answers a question, whose annotations name the question and the JSON part of the reply."""

    answer: Callable[[Opened, Any], Reply[Any]]
    rank: int = 0
    """0: it is short. 1: it gives way to those between two pieces of its work. 2: also to all others."""

    @cached
    def question(self) -> type[Asked]:
        """The fields of the question."""
        return get_type_hints(self.answer)["question"]

    @cached
    def reply(self) -> Any:
        """The type of the JSON part of the reply."""
        return get_args(get_type_hints(self.answer)["return"])[0]


@dataclass(frozen=True, kw_only=True)
class Place(Handler):
    """A place of another package. Its question is an `OfRun`, whose other fields have defaults."""

    rank: int = 1
    title: str
    """The name of the place in the page's list."""
    script: str
    """A file beside the module of `answer`: JavaScript that exports `draw(element, reply, ask)`. `reply.json` and
    `reply.tensors` are the answer, and `ask(fields)` asks again with other fields."""

    def source(self) -> str:
        """The text of the module. Raises UserError if it cannot be read."""
        path = Path(inspect.getfile(self.answer)).with_name(self.script)
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: expected the script of a place, got {error}") from None


def places() -> dict[str, Place]:
    """The places of other packages by name. Raises UserError for one that cannot be loaded."""
    return {name: load_extension("places", name, where) for name, where in extensions("places").items()}
