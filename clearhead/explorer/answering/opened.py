"""`Opened`: a model, opened in a page. All answers are computed from it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import JsonValue

from clearhead.api import Model
from clearhead.capture.difference import check_comparable
from clearhead.capture.texts import Text
from clearhead.explorer.answering.passes import Passes
from clearhead.explorer.answering.requests import RunRequest
from clearhead.explorer.answering.starts import starts
from clearhead.model.fast.rounding import RoundedMatrix

if TYPE_CHECKING:
    from clearhead.data.images import Picture

T = TypeVar("T")
UNNAMED = "model"
"""The name of a model that was opened from Python, whose origin the page does not know."""


class Opened:
    """A model with its name, its forward passes, and the inputs that a page begins with."""

    def __init__(
        self,
        model: Model,
        *,
        name: str,
        folder: Path | None = None,
        text: str | None = None,
        target: str | None = None,
        image: "Picture | None" = None,
        walks: Sequence[Mapping[str, JsonValue]] = (),
        data: Iterable[Text] | None = None,
        matrices: Mapping[str, RoundedMatrix] | None = None,
        compared: Model | None = None,
        compared_name: str | None = None,
        revision: str | None = None,
    ) -> None:
        """`folder` is the folder of the model: that of a run has a history. `walks` lead along this model
        (ui/src/core/walk.ts). `data` are texts in which the page looks for examples; None: those of the run. `matrices`
        are those of a model that is rounded to 8 or 4 bits. `compared` is another model, of which the page shows how
        it differs. The rest is what the page begins with. Raises UserError for one of another architecture.
        """
        self.name, self.model, self.walks, self.folder, self.data = name, model, walks, folder, data
        self.matrices, self.revision = matrices or {}, revision
        if compared is not None:
            check_comparable(model, compared)
        self.compared, self.compared_name = compared, compared_name or (None if compared is None else UNNAMED)
        self._kept: dict[type, Any] = {}
        self.start, self.examples, pictures = starts(model, folder, text, target, image)
        self.passes = Passes(model, folder, pictures, compared)

    def kept(self, kind: type[T], make: Callable[[], T]) -> T:
        """What the answers of one kind keep for the next question; `make` makes it at the first."""
        if kind not in self._kept:
            self._kept[kind] = make()
        return self._kept[kind]


def stated(run: RunRequest) -> dict[str, JsonValue]:
    """A request as a page makes it."""
    return {
        "target": None, "edits": [], **run.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    }  # fmt: skip
