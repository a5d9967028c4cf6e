"""Every architecture as data: frozen, validated types that say what a network is. Imports no torch.

A `ModelConfig` is one or two `StackConfig`s and a head. Encoder-decoder, encoder-only, decoder-only and image models
differ only in which of these are present and in the values of their fields.
"""

from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator


class Config(BaseModel):
    """Base of every configuration: immutable, and a key it does not know is an error that names it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


Probability = Annotated[float, Field(ge=0.0, lt=1.0)]


# --- positions ---------------------------------------------------------------------------------------------------


class Sinusoidal(Config):
    """PE(p, 2i) = sin(p / base^(2i/d)), PE(p, 2i+1) = cos(same), added to the embedding (Vaswani et al. 2017, 3.5)."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    layout: Literal["interleaved", "concatenated"] = "interleaved"
    """interleaved: sin, cos, sin, cos, ... as in the paper; concatenated: all sines, then all cosines."""
    base: PositiveFloat = 10_000.0


class Learned(Config):
    """One learned vector a position, added to the embedding; longer sequences are refused."""

    kind: Literal["learned"] = "learned"
    max_length: PositiveInt = 512
    offset: NonNegativeInt = 0
    """Rows before position 0 (some checkpoints reserve the first two)."""


class LinearScaling(Config):
    """Rotary angles divided by `factor`: position interpolation (Chen et al. 2023)."""

    kind: Literal["linear"] = "linear"
    factor: PositiveFloat


class WavelengthScaling(Config):
    """Long wavelengths divided by `factor`, short ones kept, a linear blend between them."""

    kind: Literal["wavelength"] = "wavelength"
    factor: PositiveFloat
    low_factor: PositiveFloat = 1.0
    high_factor: PositiveFloat = 4.0
    original_length: PositiveInt


class YarnScaling(Config):
    """Interpolation by frequency with a ramp, and a temperature on the scores (Peng et al. 2023, YaRN)."""

    kind: Literal["yarn"] = "yarn"
    factor: PositiveFloat
    original_length: PositiveInt
    beta_fast: PositiveFloat = 32.0
    beta_slow: PositiveFloat = 1.0


RotaryScaling = Annotated[LinearScaling | WavelengthScaling | YarnScaling, Field(discriminator="kind")]


class Rotary(Config):
    """Queries and keys rotated by an angle proportional to their position (Su et al. 2021); half-split layout."""

    kind: Literal["rotary"] = "rotary"
    base: PositiveFloat = 10_000.0
    fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Share of each head's width that is rotated."""
    scaling: RotaryScaling | None = None


class RelativeBias(Config):
    """A learned bias for each head and bucket of distance, added to the scores (Raffel et al. 2019, 2.1)."""

    kind: Literal["relative"] = "relative"
    n_buckets: PositiveInt = 32
    max_distance: PositiveInt = 128


class ALiBi(Config):
    """score - slope_h * |distance|, with fixed slopes 2^(-8h/n) (Press et al. 2021)."""

    kind: Literal["alibi"] = "alibi"


class NoPositions(Config):
    """No position enters at all: attention alone is permutation-equivariant."""

    kind: Literal["none"] = "none"


Positions = Annotated[
    Sinusoidal | Learned | Rotary | RelativeBias | ALiBi | NoPositions, Field(discriminator="kind")
]


# --- what a stack reads ------------------------------------------------------------------------------------------


class TokenInput(Config):
    """Token ids, looked up in a table of vocab_size vectors."""

    kind: Literal["tokens"] = "tokens"
    vocab_size: PositiveInt
    scale: bool = False
    """Multiply the looked-up vector by sqrt(d_model) (Vaswani et al. 2017, 3.4)."""
    n_types: NonNegativeInt = 0
    """Number of segment types (sentence A, sentence B); 0 for none."""
    norm: bool = False
    """Normalise the sum of tokens, positions and types."""


class PatchInput(Config):
    """An image cut in square patches, each projected to d_model (Dosovitskiy et al. 2020, 3.1)."""

    kind: Literal["patches"] = "patches"
    image_size: PositiveInt
    patch_size: PositiveInt
    n_channels: PositiveInt = 3
    class_token: bool = True
    """Put one learned vector in front, whose last state is what a classifier reads."""

    @property
    def n_patches(self) -> int:
        return (self.image_size // self.patch_size) ** 2

    @property
    def length(self) -> int:
        """Positions the stack sees: patches and the class token."""
        return self.n_patches + self.class_token

    @model_validator(mode="after")
    def _whole_patches(self) -> Self:
        if self.image_size % self.patch_size:
            raise ValueError(f"patch_size={self.patch_size} must divide image_size={self.image_size}")
        return self


StackInput = Annotated[TokenInput | PatchInput, Field(discriminator="kind")]


# --- the stack ---------------------------------------------------------------------------------------------------


class StackConfig(Config):
    """A stack of equal blocks: attention, (cross-attention,) feed-forward, each in a residual with its norm."""

    input: StackInput
    d_model: PositiveInt
    n_layers: Annotated[int, Field(ge=1, le=1024)]
    n_heads: PositiveInt
    d_ff: PositiveInt
    positions: Positions = Sinusoidal()

    n_kv_heads: PositiveInt | None = None
    """Key and value heads: n_heads (the default) is multi-head, 1 is multi-query, between is grouped-query."""
    d_head: PositiveInt | None = None
    """Width of one head; default d_model / n_heads."""
    window: PositiveInt | None = None
    """Attend only to keys less than this many positions away; None for all."""
    attn_scale: PositiveFloat | None = None
    """Factor on q.k; default 1 / sqrt(d_head)."""
    soft_cap: PositiveFloat | None = None
    """Scores become cap * tanh(scores / cap)."""
    qk_norm: bool = False
    """Normalise each query and key head before the product."""

    norm: Literal["layer", "rms"] = "layer"
    norm_place: Literal["pre", "post", "sandwich"] = "pre"
    """pre: x + f(Norm(x)); post: Norm(x + f(x)); sandwich: x + Norm(f(Norm(x)))."""
    norm_eps: PositiveFloat = 1e-5
    final_norm: bool | None = None
    """Normalise the last state; default: yes, unless the norms are post."""

    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] = "relu"
    gated: bool = False
    """down(act(gate(x)) * up(x)) in place of down(act(up(x))) (Shazeer 2020)."""

    bias: bool = True
    """Bias in every linear layer and norm; qkv_bias, out_bias, ffn_bias and norm_bias override it."""
    qkv_bias: bool | None = None
    out_bias: bool | None = None
    ffn_bias: bool | None = None
    norm_bias: bool | None = None

    dropout: Probability = 0.0
    """On the embeddings and on each branch before it joins the residual stream."""
    attn_dropout: Probability = 0.0
    ffn_dropout: Probability = 0.0
    """On the activations between the two feed-forward layers."""

    @cached_property
    def head_width(self) -> int:
        """d_head where given, else d_model / n_heads."""
        return self.d_head or self.d_model // self.n_heads

    @property
    def kv_heads(self) -> int:
        return self.n_kv_heads or self.n_heads

    @property
    def score_scale(self) -> float:
        return self.attn_scale if self.attn_scale is not None else self.head_width**-0.5

    @property
    def has_final_norm(self) -> bool:
        return self.norm_place != "post" if self.final_norm is None else self.final_norm

    @property
    def max_length(self) -> int | None:
        """Longest sequence its positions can name, or None where there is no limit."""
        return self.positions.max_length if isinstance(self.positions, Learned) else None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.d_head is None and self.d_model % self.n_heads:
            raise ValueError(f"n_heads={self.n_heads} must divide d_model={self.d_model}; or give d_head")
        if self.n_heads % self.kv_heads:
            raise ValueError(f"n_kv_heads={self.n_kv_heads} must divide n_heads={self.n_heads}")
        if isinstance(self.positions, Sinusoidal) and self.d_model % 2:
            raise ValueError(f"d_model={self.d_model} must be even for sinusoidal positions")
        if isinstance(self.positions, Rotary) and round(self.head_width * self.positions.fraction) % 2:
            raise ValueError(f"d_head={self.head_width} * fraction={self.positions.fraction} must be even for rotary")
        if isinstance(self.input, PatchInput) and self.max_length is not None and self.max_length < self.input.length:
            raise ValueError(
                f"positions.max_length={self.max_length} must be at least the {self.input.length} patches"
                f" of image_size={self.input.image_size}"
            )
        return self


# --- heads -------------------------------------------------------------------------------------------------------


class LanguageHead(Config):
    """Logits over the vocabulary for each position."""

    kind: Literal["language"] = "language"
    tied: bool = True
    """Use the token table as the output matrix (Press and Wolf 2017)."""
    bias: bool = False
    transform: bool = False
    """A dense layer, activation and norm before the output matrix (Devlin et al. 2018, masked LM)."""
    scale: PositiveFloat | None = None
    """Factor on the states before the output matrix; None for 1."""
    soft_cap: PositiveFloat | None = None


class ClassificationHead(Config):
    """Logits of n_labels classes for the whole sequence or image."""

    kind: Literal["classification"] = "classification"
    n_labels: PositiveInt
    pool: Literal["first", "last", "mean"] = "first"
    pooler: bool = False
    """A dense tanh layer between the pooled state and the classifier (Devlin et al. 2018)."""


class TaggingHead(Config):
    """Logits of n_labels classes for each position."""

    kind: Literal["tagging"] = "tagging"
    n_labels: PositiveInt


class SpanHead(Config):
    """Two logits for each position: the answer starts here, ends here."""

    kind: Literal["span"] = "span"


class NoHead(Config):
    """The last states themselves."""

    kind: Literal["none"] = "none"


Head = Annotated[
    LanguageHead | ClassificationHead | TaggingHead | SpanHead | NoHead, Field(discriminator="kind")
]


class Init(Config):
    """How a new network's weights are drawn."""

    std: PositiveFloat = 0.02
    """Standard deviation of embeddings, and of matrices where `matrices` is normal."""
    matrices: Literal["normal", "xavier"] = "normal"
    """xavier: uniform with variance 2 / (fan_in + fan_out) (Glorot and Bengio 2010)."""
    depth_scaled: bool = True
    """Divide the matrices that write to the residual stream by sqrt(number of branches)."""


class ModelConfig(Config):
    """A whole network: encoder, decoder or both, and a head."""

    encoder: StackConfig | None = None
    decoder: StackConfig | None = None
    head: Head = LanguageHead()
    share_embeddings: bool = False
    """One token table for encoder and decoder."""
    init: Init = Init()

    @property
    def output(self) -> StackConfig:
        """The stack whose states the head reads."""
        stack = self.decoder or self.encoder
        assert stack is not None
        return stack

    @property
    def is_causal(self) -> bool:
        """Whether it generates: a decoder always attends to the past only."""
        return self.decoder is not None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.encoder is None and self.decoder is None:
            raise ValueError("encoder and decoder are both missing: give at least one")
        if self.encoder and self.decoder and self.encoder.d_model != self.decoder.d_model:
            raise ValueError(
                f"encoder.d_model={self.encoder.d_model} must equal decoder.d_model={self.decoder.d_model}"
            )
        if self.decoder is not None and not isinstance(self.decoder.input, TokenInput):
            raise ValueError("decoder.input must be tokens: a decoder writes text")
        if self.share_embeddings:
            tables = [s.input.vocab_size for s in (self.encoder, self.decoder) if s and isinstance(s.input, TokenInput)]
            if len(tables) != 2 or tables[0] != tables[1]:
                raise ValueError(f"share_embeddings needs two token stacks with one vocab_size, got {tables}")
        if isinstance(self.head, LanguageHead) and not isinstance(self.output.input, TokenInput):
            raise ValueError("head: a language head needs a stack that reads tokens")
        return self
