"""Position encodings, as data."""

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, model_validator

from clearhead.config.base import Count
from clearhead.config.mechanism import Kinds, Mechanism
from clearhead.config.scaling import Divisors, DynamicScaling, LongScaling, RotaryScaling

__all__ = [
    "ALiBi",
    "AnyWidth",
    "Disentangled",
    "Encoding",
    "Learned",
    "LearnedGrid",
    "NoEnd",
    "NoPositions",
    "Positions",
    "RelativeBias",
    "Rotary",
    "RotaryGrid",
    "Sinusoidal",
    "Together",
]


class Encoding(Mechanism):
    """How a stack encodes positions. Its module is built from it, the `StackConfig` and `causal`."""

    label: ClassVar[str]
    """What papers call it."""
    acts_on: ClassVar[str]
    """What it changes: the embedding, queries and keys, scores, embedding and scores, or nothing."""

    @property
    @abstractmethod
    def longest(self) -> int | None:
        """The longest sequence that they can encode; None if there is no limit."""

    @abstractmethod
    def check_widths(self, *, d_model: int, d_head: int) -> None:
        """Raises ValueError if they do not fit these widths."""

    @property
    def by_head(self) -> bool:
        """True if the heads of a layer differ in their positions, so that no head can be removed alone."""
        return "scores" in self.acts_on


class NoEnd(Encoding):
    """Positions for sequences of any length."""

    @property
    def longest(self) -> None:
        """The longest sequence that they can encode; None if there is no limit."""
        return None


class AnyWidth(Encoding):
    """Positions that fit every network."""

    def check_widths(self, *, d_model: int, d_head: int) -> None:
        """Raises ValueError if they do not fit these widths."""


class Sinusoidal(NoEnd):
    """PE(p, 2i) = sin(p / base^(2i/d)), PE(p, 2i+1) = cos(same), added to the embedding (Vaswani et al. 2017, 3.5)."""

    label, acts_on = "sinusoidal", "embedding"
    builds = "clearhead.model.positions:SinusoidalEncoding"
    kind: Literal["sinusoidal"] = "sinusoidal"
    layout: Literal["interleaved", "concatenated"] = "interleaved"
    """interleaved: sin, cos, sin, cos, ... as in the paper; concatenated: all sines, then all cosines."""
    base: PositiveFloat = 10_000.0
    offset: Annotated[int, Field(ge=0, le=2**32)] = 0
    """The number of the first position (some checkpoints count from 2)."""

    def check_widths(self, *, d_model: int, d_head: int) -> None:
        """Raises ValueError for an odd d_model, because sines and cosines come in pairs."""
        if d_model % 2:
            raise ValueError(f"d_model={d_model} must be even for sinusoidal positions")


class Learned(AnyWidth):
    """One learned vector for each position, added to the embedding. Longer sequences are refused."""

    label, acts_on = "learned", "embedding"
    builds = "clearhead.model.positions:LearnedEncoding"
    kind: Literal["learned"] = "learned"
    max_length: Count = 512
    offset: Annotated[int, Field(ge=0, le=2**32)] = 0
    """Rows before position 0 (some checkpoints reserve the first two)."""

    @property
    def longest(self) -> int:
        """The longest sequence that they can encode."""
        return self.max_length


class Rotary(Encoding):
    """Queries and keys rotated by an angle proportional to their position (Su et al. 2021); half-split layout."""

    label, acts_on = "rotary", "queries and keys"
    builds = "clearhead.model.positions:RotaryEncoding"
    kind: Literal["rotary"] = "rotary"
    base: Annotated[float, Field(gt=1.0)] = 10_000.0
    fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Share of each head's width that is rotated."""
    frequencies: Divisors | None = None
    """The angle of each pair for one position, if it is not base^(-2i/width): checkpoints may hold rounded ones."""
    scaling: RotaryScaling | None = None
    sections: tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt] | None = None
    """The pairs that turn by a token's place, by its row and by its column, which differ only within a picture (Wang et
    al. 2024, 2.1); None if all turn by its place."""
    trained_length: Count | None = None
    """Length of the longest texts in training, for other libraries. It limits nothing here."""

    @property
    def longest(self) -> int | None:
        """The longest sequence that they can encode; None if there is no limit."""
        return self.scaling.original_length if isinstance(self.scaling, LongScaling | DynamicScaling) else None

    def rotated(self, d_head: int) -> int:
        """The number of rotated components of a head."""
        return int(d_head * self.fraction)

    def check_widths(self, *, d_model: int, d_head: int) -> None:
        """Raises ValueError unless the number of rotated components is even and above 0."""
        if not self.rotated(d_head) or self.rotated(d_head) % 2:
            raise ValueError(f"d_head={d_head} * fraction={self.fraction} must be even and not 0 for rotary")
        of_pairs = {"frequencies": self.frequencies}
        if isinstance(self.scaling, LongScaling):
            of_pairs["scaling.divisors"] = self.scaling.divisors
        half = self.rotated(d_head) // 2
        if self.sections is not None and sum(self.sections) != half:
            raise ValueError(f"sections={self.sections} must sum to {half}, half of the rotated components")
        for name, numbers in of_pairs.items():
            if numbers is not None and len(numbers) != half:
                raise ValueError(f"{name}: expected {half}, half of the rotated components, got {len(numbers)}")


class RelativeBias(NoEnd, AnyWidth):
    """A learned bias for each head and bucket of distance, added to the scores (Raffel et al. 2019, 2.1)."""

    label, acts_on = "relative", "scores"
    builds = "clearhead.model.positions:relative_bias"
    kind: Literal["relative"] = "relative"
    n_buckets: Annotated[int, Field(ge=4, le=2**20, multiple_of=2)] = 32
    max_distance: Count = 128
    each_layer: bool = False
    """A bias of its own for each layer, in place of one for all (Chung et al. 2023, UMT5)."""

    @model_validator(mode="after")
    def _beyond_the_exact_buckets(self) -> Self:
        if self.max_distance <= self.n_buckets // 2:
            raise ValueError(f"max_distance={self.max_distance} must exceed half of n_buckets={self.n_buckets}")
        return self


class ALiBi(NoEnd, AnyWidth):
    """score - slope_h * |distance|, with fixed slopes 2^(-8h/n) (Press et al. 2021)."""

    label, acts_on = "ALiBi", "scores"
    builds = "clearhead.model.positions:ALiBiEncoding"
    kind: Literal["alibi"] = "alibi"


class Disentangled(NoEnd, AnyWidth):
    """Scores of states with vectors of distances: content to position, and position to content (He et al. 2020, 3.1).

    Each layer projects the vectors by itself.
    """

    label, acts_on = "disentangled", "scores"
    builds = "clearhead.model.distances:DisentangledEncoding"
    kind: Literal["disentangled"] = "disentangled"
    max_distance: Annotated[int, Field(ge=1, le=2**20)] = 512
    """Greater distances count as this one."""
    n_buckets: Annotated[int, Field(ge=2, le=2**20)] | None = None
    """Vectors for each direction, exact to the half of them and then logarithmic; None for one for each distance."""
    content_to_position: bool = True
    """A query with the vector of its distance to the key."""
    position_to_content: bool = True
    """A key with the vector of its distance to the query."""
    shared: bool = False
    """Project the vectors by the layer's own matrices of queries and keys."""
    norm: bool = False
    """Normalise the vectors."""

    @property
    def span(self) -> int:
        """Vectors for each direction."""
        return self.n_buckets or self.max_distance

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not (self.content_to_position or self.position_to_content):
            raise ValueError("content_to_position=False needs position_to_content=True, or there is no score")
        if self.n_buckets is not None and self.max_distance <= self.n_buckets // 2 + 1:
            raise ValueError(
                f"max_distance={self.max_distance} must exceed half of n_buckets={self.n_buckets} by more than 1"
            )
        return self


class LearnedGrid(NoEnd, AnyWidth):
    """One learned vector for each of the first cells and for each patch of a square grid, added to the embedding.

    A picture with another number of patches reads vectors interpolated between those (bicubic; Oquab et al. 2023).
    Registers, which stand between the first cells and the patches, have none.
    """

    label, acts_on = "learned in a grid", "embedding"
    builds = "clearhead.model.positions:LearnedGridEncoding"
    kind: Literal["learned_grid"] = "learned_grid"
    side: Annotated[int, Field(ge=1, le=2**14)]
    """Patches in a row and in a column of the grid that the table is for."""
    first: Annotated[int, Field(ge=0, le=2**16)] = 1
    """Cells before the patches that have a vector, such as the class token."""
    antialias: bool = False
    """Interpolate over a wider area where the new grid is coarser."""

    @property
    def rows(self) -> int:
        """The number of vectors."""
        return self.first + self.side**2


class RotaryGrid(NoEnd):
    """Queries and keys of patches rotated by angles proportional to their row and their column, each from -1 to 1, with
    half of a head's width for either (Simeoni et al. 2025, 3.2, DINOv3). The cells before the patches are not.
    """

    label, acts_on = "rotary in a grid", "queries and keys"
    builds = "clearhead.model.positions:RotaryGridEncoding"
    kind: Literal["rotary_grid"] = "rotary_grid"
    base: Annotated[float, Field(gt=1.0)] = 100.0

    def check_widths(self, *, d_model: int, d_head: int) -> None:
        """Raises ValueError unless a quarter of a head's width is a whole number."""
        if d_head % 4:
            raise ValueError(f"d_head={d_head} must be a multiple of 4 for rotary positions in a grid")


class NoPositions(NoEnd, AnyWidth):
    """No position encoding: attention alone is permutation-equivariant."""

    label, acts_on = "none", "nothing"
    builds = "clearhead.model.positions:NoEncoding"
    kind: Literal["none"] = "none"


class Together(Encoding):
    """One encoding added to the embedding and another to the scores of every layer, as in MPNet (Song et al. 2020)."""

    label, acts_on = "two together", "embedding and scores"
    builds = "clearhead.model.positions:TogetherEncoding"
    kind: Literal["together"] = "together"
    added: Annotated[Sinusoidal | Learned, Field(discriminator="kind")]
    scored: Annotated[RelativeBias | ALiBi | Disentangled, Field(discriminator="kind")]

    @property
    def longest(self) -> int | None:
        """The longest sequence that both can encode; None if there is no limit."""
        return self.added.longest

    def check_widths(self, *, d_model: int, d_head: int) -> None:
        """Raises ValueError if one of them does not fit these widths."""
        self.added.check_widths(d_model=d_model, d_head=d_head)


OwnPositions = Annotated[
    Sinusoidal
    | Learned
    | Rotary
    | RelativeBias
    | ALiBi
    | Disentangled
    | LearnedGrid
    | RotaryGrid
    | NoPositions
    | Together,
    Field(discriminator="kind"),
]
Positions = Annotated[Encoding, Kinds(OwnPositions, Encoding)]

WITHOUT_WEIGHTS = {one.kind: one for one in (Sinusoidal(), Rotary(), ALiBi(), NoPositions())}
"""Position encodings that any network can take in place of its own, because they have no weights."""
FIXED_BIAS = next(one for one in WITHOUT_WEIGHTS.values() if one.acts_on == "scores")
"""The one of them that changes scores only."""
