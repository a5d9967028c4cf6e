"""What a stack reads, as data: tokens, the patches of an image, frames or samples of sound."""

from abc import abstractmethod
from math import prod
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from clearhead.config.base import Config, Count, Width
from clearhead.config.mechanism import Activation

__all__ = ["Continuous", "Convolution", "FrameInput", "GridInput", "PatchInput"]
__all__ += ["StackInput", "TokenInput", "WaveInput"]


class TokenInput(Config):
    """Token ids, looked up in a table of vocab_size vectors."""

    kind: Literal["tokens"] = "tokens"
    vocab_size: Count
    scale: bool = False
    """Multiply the looked-up vector by sqrt(d_model) (Vaswani et al. 2017, 3.4)."""
    factor: PositiveFloat | None = None
    """Multiply the looked-up vector by this number too; None for 1."""
    n_types: Annotated[int, Field(ge=0, le=2**32)] = 0
    """Number of segment types (sentence A, sentence B); 0 for none."""
    norm: bool = False
    """Normalise the sum of tokens, positions and types."""
    width: Width | None = None
    """Width of the tables and of that norm, if a dense layer brings the sum to d_model (Lan et al. 2019, 3.1)."""
    mask_id: Annotated[int, Field(ge=0, le=2**32)] | None = None
    """The mask token, whose vector becomes 0. The others of its text are multiplied by the share of unmasked tokens in
    training, 88%, over that of the text (Lin et al. 2022, ESM-2)."""
    tokens_alone: bool = False
    """That layer brings the tokens alone to d_model, without a bias, and the rest is added after it (OPT-350M)."""

    @model_validator(mode="after")
    def _layer(self) -> Self:
        if self.tokens_alone and self.width is None:
            raise ValueError("tokens_alone=True needs width, that of the token table")
        return self


class Continuous(Config):
    """Numbers of one shape, from which a stem computes a fixed number of vectors."""

    medium: ClassVar[str]
    """What the numbers are, for messages: image, sound."""
    values: ClassVar[str]
    """The last part of the address of the numbers."""
    axes: ClassVar[str]
    """The letters of their axes (docs/glossary.md)."""
    sides: ClassVar[str]
    """The axes in words, for messages."""
    is_fixed: ClassVar[bool] = True
    """Whether all inputs have one length. Otherwise `shape` and `length` are those of a usual one."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes of one input."""

    @property
    @abstractmethod
    def length(self) -> int:
        """The number of positions."""

    @abstractmethod
    def shape_of(self, length: int) -> tuple[int, ...]:
        """The lengths of the axes of an input of so many positions."""


class PatchInput(Continuous):
    """An image cut into square patches, each projected to d_model (Dosovitskiy et al. 2020, 3.1)."""

    medium = "image"
    values = "pixels"
    axes = "c y x"
    sides = "channels x height x width"

    kind: Literal["patches"] = "patches"
    image_size: Annotated[int, Field(gt=0, le=2**14)]
    patch_size: PositiveInt
    n_channels: Annotated[int, Field(gt=0, le=2**10)] = 3
    class_token: bool = True
    """Put one learned vector first. A classifier reads its last state."""
    n_registers: Annotated[int, Field(ge=0, le=2**16)] = 0
    """Learned vectors behind it, for the network's own use (Darcet et al. 2023) or to be distilled into (Touvron et al.
    2020)."""
    mask_token: bool = False
    """Keep the vector that replaces masked patches when other libraries pretrain. No patch is masked here."""
    bias: bool = True
    """Bias of the projection."""
    norm: bool = False
    """Normalise the sum of patches and positions."""

    @property
    def side(self) -> int:
        """Patches in a row, and in a column."""
        return self.image_size // self.patch_size

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.n_channels, self.image_size, self.image_size

    @property
    def n_patches(self) -> int:
        return self.side**2

    @property
    def n_first(self) -> int:
        """The number of positions before the patches: the class token and the registers."""
        return self.class_token + self.n_registers

    @property
    def length(self) -> int:
        """The number of positions: the class token, the registers and the patches."""
        return self.n_first + self.n_patches

    def shape_of(self, length: int) -> tuple[int, ...]:
        return self.shape

    @model_validator(mode="after")
    def _whole_patches(self) -> Self:
        if self.image_size % self.patch_size:
            raise ValueError(f"patch_size={self.patch_size} must divide image_size={self.image_size}")
        return self


class GridInput(Continuous):
    """The patches of pictures of any size, one small square of them after the other (Wang et al. 2024, 2.1)."""

    medium = "image"
    values = "patches"
    axes = "t c"
    sides = "patches x pixels"
    is_fixed = False
    side: ClassVar[int] = 16
    """Patches in a row of a usual picture, and in a column."""

    kind: Literal["grid"] = "grid"
    patch_size: PositiveInt
    n_channels: Annotated[int, Field(gt=0, le=2**10)] = 3
    frames: PositiveInt = 2
    """How often each patch is read, as a film of so many frames that stands still."""
    n_first: ClassVar[int] = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.shape_of(self.length)

    @property
    def length(self) -> int:
        return self.side**2

    def shape_of(self, length: int) -> tuple[int, ...]:
        return length, self.n_channels * self.patch_size**2


class FrameInput(Continuous):
    """Frames of sound. Two convolutions compute a vector for every second frame (Radford et al. 2022, 2.2)."""

    medium = "sound"
    values = "frames"
    axes = "x c"
    sides = "frames x bins"

    kind: Literal["frames"] = "frames"
    n_frames: Annotated[int, Field(ge=2, le=2**24)]
    n_bins: Annotated[int, Field(gt=0, le=2**12)] = 80
    """Numbers of each frame: the loudness of each band of frequencies."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_frames, self.n_bins

    @property
    def length(self) -> int:
        return self.n_frames // 2

    def shape_of(self, length: int) -> tuple[int, ...]:
        return self.shape

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.n_frames % 2:
            raise ValueError(f"n_frames={self.n_frames} must be even, because every second frame is kept")
        return self


USUAL = 50
"""Moments of a usual sound: a second of published models."""


class Convolution(Config):
    """A convolution over time."""

    width: Annotated[int, Field(gt=0, le=2**16)]
    """Samples, or vectors of the convolution before, that it reads at once."""
    step: Annotated[int, Field(gt=0, le=2**16)]
    """From where it reads one vector to where it reads the next."""
    channels: Width
    """Width of its vectors."""


class WaveInput(Continuous):
    """The samples of a sound of any length. Convolutions compute a vector for each moment.

    What is added for its position is a convolution over the moments around it (Baevski et al. 2020, 2).
    """

    medium = "sound"
    values = "samples"
    axes = "x c"
    sides = "samples x 1"
    is_fixed = False

    kind: Literal["samples"] = "samples"
    convolutions: Annotated[tuple[Convolution, ...], Field(min_length=1, max_length=64)]
    conv_norm: Literal["first", "all"] = "first"
    """first: each channel of the first convolution, over all moments of the sound; all: every vector of each one."""
    conv_bias: bool = False
    activation: Activation = "gelu"
    """After each convolution, also that of the positions."""
    feature_norm: bool = True
    """Normalise the last convolution's vectors before the dense layer that brings them to d_model."""
    position_width: Annotated[int, Field(gt=0, le=2**16)] = 128
    """Moments that the convolution of the positions reads at once."""
    position_groups: Width = 16
    """Groups of components; that convolution reads and writes each group separately."""
    mask_token: bool = False
    """Keep the vector that replaces masked moments when other libraries pretrain. No moment is masked here."""
    norm: bool = False
    """Normalise the sum of moments and positions."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.shape_of(USUAL)

    @property
    def length(self) -> int:
        return USUAL

    def shape_of(self, length: int) -> tuple[int, ...]:
        """The fewest samples of so many moments, x 1."""
        for convolution in reversed(self.convolutions):
            length = (length - 1) * convolution.step + convolution.width
        return length, 1

    @property
    def step(self) -> int:
        """Samples from one moment to the next."""
        return prod(convolution.step for convolution in self.convolutions)


StackInput = Annotated[TokenInput | PatchInput | GridInput | FrameInput | WaveInput, Field(discriminator="kind")]
