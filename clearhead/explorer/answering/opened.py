"""`Opened`: a model, opened in a page. All answers are computed from it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from clearhead.api import Model
from clearhead.explorer.answering.passes import Passes
from clearhead.explorer.answering.requests import RunRequest
from clearhead.explorer.answering.starts import starts
from clearhead.model.rounding import RoundedMatrix

if TYPE_CHECKING:
    from clearhead.data.pictures import Picture

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
        matrices: Mapping[str, RoundedMatrix] | None = None,
    ) -> None:
        """`folder` is the folder of the model: that of a run has a history. `walks` lead along this model
        (ui/src/core/walk.ts). `matrices` are those of a model that is rounded to 8 or 4 bits. The rest is what the page
        begins with.
        """
        self.name, self.model, self.walks, self.matrices = name, model, walks, matrices or {}
        self.start, self.examples, pictures = starts(model, folder, text, target, image)
        self.passes = Passes(model, folder, pictures)


def stated(run: RunRequest) -> dict[str, JsonValue]:
    """A request as a page makes it."""
    return {
        "target": None, "edits": [], **run.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    }  # fmt: skip
