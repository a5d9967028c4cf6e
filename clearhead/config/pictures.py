"""Pictures within a text, as data: a vision tower, and what makes vectors of the text model of its states."""

from math import prod
from typing import Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from clearhead.config.base import Config, Width
from clearhead.config.inputs import GridInput, PatchInput
from clearhead.config.mechanism import Activation
from clearhead.config.stack import StackConfig

__all__ = ["PictureInput", "Projector"]


class Projector(Config):
    """W join(Norm(pool(states))), or with an activation W2 act(W1 …): one vector of the text model for some patches."""

    pool: PositiveInt = 1
    """Side of the squares of patches that become one: their mean (Gemma Team 2025, 2)."""
    join: PositiveInt = 1
    """Side of the squares of patches whose states are joined to one (Laurençon et al. 2024, pixel shuffle)."""
    norm_eps: PositiveFloat | None = None
    """Epsilon of a norm before the first dense layer, x / rms(x) * (1 + weight); None for no norm."""
    activation: Activation | None = None
    """Between two dense layers (Liu et al. 2023, LLaVA-1.5, 3.2); None for one dense layer."""
    width: Width | None = None
    """What the first of two dense layers writes; None for the width of the text model."""
    bias: bool = True


class PictureInput(Config):
    """Pictures that a tower reads, and whose vectors take the places of marks in a text (Liu et al. 2023, 4.1)."""

    tower: StackConfig
    projector: Projector = Projector()
    mark_id: int = Field(ge=0, le=2**32)
    """The token that a vector of a picture replaces."""
    keeps_first: bool = False
    """Keep the states before those of the patches, such as the class token's."""
    sees: Literal["past", "picture", "prompt"] = "past"
    """What a mark may attend to: what came before; also the rest of its picture; or as every token of a prompt with
    pictures the whole prompt (Beyer et al. 2024, PaliGemma, 3.2)."""
    first_id: int | None = None
    """A token before the marks of each picture, for which alone a prompt has it; None if a prompt has one mark. For
    pictures of any size a prompt has all three: this one, a mark and the last."""
    last_id: int | None = None
    """A token after the marks of each picture."""
    video_id: int | None = None
    """A token that stands for a video, which is not read: a prompt with it is refused."""
    around: str = ""
    """A text before and after each picture with its tokens."""
    tiles: bool = False
    """Large pictures are cut into tiles, which are read like pictures and named by row and column in the text, before
    the whole one (Laurençon et al. 2024, Idefics 3)."""

    @property
    def reads(self) -> PatchInput | GridInput:
        """The input of the tower."""
        assert isinstance(self.tower.input, PatchInput | GridInput)
        return self.tower.input

    @property
    def any_size(self) -> bool:
        """True if pictures keep their proportions, so that they differ in their vectors."""
        return isinstance(self.tower.input, GridInput)

    @property
    def side(self) -> int:
        """Vectors in a row of a picture, or of a usual one of any size, and in a column."""
        return self.reads.side // (self.projector.pool * self.projector.join)

    @property
    def n_marks(self) -> int:
        """The marks of one picture."""
        return self.side**2 + (self.reads.n_first if self.keeps_first else 0)

    def spelled(self, first: str, mark: str, last: str, grid: tuple[int, int] = (0, 0)) -> str:
        """The text that stands for a picture of so many rows and columns of tiles, or of patches if it has any size;
        the others are its tokens.
        """
        marks = mark * (prod(grid) // self.projector.join**2 if self.any_size else self.n_marks)
        if not self.tiles:
            return f"{self.around}{first}{marks}{last}{self.around}"
        edge, (rows, columns) = "<fake_token_around_image>", grid
        lines = ("".join(f"{edge}<row_{r}_col_{c}>{marks}" for c in range(1, columns + 1)) for r in range(1, rows + 1))
        return "".join(f"{line}\n" for line in lines) + "\n" * (rows > 0) + f"{edge}<global-img>{marks}{edge}"

    @model_validator(mode="after")
    def _patches(self) -> Self:
        if not isinstance(self.tower.input, PatchInput | GridInput):
            raise ValueError(f"pictures.tower.input must be patches, got {self.tower.input.kind}")
        square = self.projector.pool * self.projector.join
        if self.reads.side % square and not self.any_size:
            raise ValueError(f"squares of {square} patches must divide the {self.reads.side} of a row")
        if square > 1 and self.keeps_first and self.reads.n_first:
            raise ValueError("pictures.keeps_first=True needs a projector of single patches")
        if self.any_size and (self.projector.pool > 1 or self.sees != "past" or self.tiles):
            raise ValueError("pictures of any size have no pool, no tiles and sees='past'")
        if self.tower.mixer is not None:
            raise ValueError("pictures.tower.mixer: its state reads only the past; leave it out")
        return self
