"""A stack of blocks and its input, as data."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, model_validator

from clearhead.config.base import Config, Count, Probability, Width
from clearhead.config.experts import Clamp, Experts
from clearhead.config.inputs import Continuous, GridInput, PatchInput, StackInput, TokenInput, WaveInput
from clearhead.config.mechanism import Activation, Norm
from clearhead.config.mixers import Mixer, TimeMixing
from clearhead.config.positions import (
    Disentangled,
    LearnedGrid,
    Positions,
    RelativeBias,
    Rotary,
    RotaryGrid,
    Sinusoidal,
    Together,
)


class Latent(Config):
    """One short vector for each position, from which all heads compute keys and values (DeepSeek-AI 2024, 2.1).

    A head's key is a part that all heads share, which rotary positions turn, and then a part of its own.
    """

    rank: Count
    """Width of that vector."""
    query_rank: Count | None = None
    """Width of a vector from which queries are computed; None computes them from the position's state."""
    d_shared: Width
    """Width of the part of a key that all heads share."""
    d_value: Width
    """Width of a head's values."""
    bias: bool = False
    """Bias of the maps to the short vectors and to the shared part."""
    norm_eps: PositiveFloat = 1e-6
    """Epsilon of the norms of the short vectors."""


class Multipliers(Config):
    """Constant factors on what maps make, which keep the best learning rate at every width (Yang et al. 2022)."""

    keys: PositiveFloat = 1.0
    """Factor on the keys of attention, and so on its scores."""
    attn: PositiveFloat = 1.0
    """Factor on the result of attention, before it joins the residual stream."""
    mix: PositiveFloat = 1.0
    """Factor on the result of `mixer`."""
    ffn: PositiveFloat = 1.0
    """Factor on the result of the feed-forward part."""
    gate: PositiveFloat = 1.0
    """Factor on what the activation of a plain feed-forward part reads."""


class StackConfig(Config):
    """A stack of equal blocks: attention, (cross-attention,) feed-forward, each in a residual with its norm."""

    input: StackInput
    d_model: Width
    n_layers: Annotated[int, Field(ge=1, le=1024)]
    n_heads: Width
    d_ff: Count
    positions: Positions = Sinusoidal()

    mixer: Mixer | None = None
    """What mixes positions in some layers, or in all, in place of attention."""
    mixing_layers: tuple[NonNegativeInt, ...] | None = None
    """Numbers of the layers that mix positions, by attention or `mixer`, from 0, in ascending order; None for all."""
    ffn_layers: tuple[NonNegativeInt, ...] | None = None
    """Numbers of the layers with a feed-forward part or experts; None for all, () for none."""
    n_groups: Width | None = None
    """Number of different blocks; each runs n_layers / n_groups times in a row (Lan et al. 2019, 3.1); default
    n_layers."""
    n_kv_heads: Width | None = None
    """Key and value heads: n_heads (the default) is multi-head, 1 multi-query, any other number grouped-query."""
    d_head: Width | None = None
    """Width of one head; default d_model / n_heads."""
    latent: Latent | None = None
    """Keys and values made of one short vector for each position."""
    window: Count | None = None
    """Attend only to keys less than this many positions away; None for all."""
    window_layers: tuple[NonNegativeInt, ...] | None = None
    """Numbers of the layers that `window` limits, from 0, in ascending order; None for all."""
    window_positions: Rotary | None = None
    """Rotary positions of the layers that `window` limits, if they differ from those of the others."""
    attn_scale: PositiveFloat | None = None
    """Factor on q.k; default 1 / sqrt(d_head)."""
    soft_cap: PositiveFloat | None = None
    """Scores become cap * tanh(scores / cap)."""
    sinks: bool = False
    """One learned score for each head, of a key without a value, that takes a share of each row of weights."""
    attn_gate: bool = False
    """Multiply what heads read by the sigmoid of a linear map of the position's state (Qiu et al. 2025, 2.2)."""
    qk_norm: bool = False
    """Normalise queries and keys before the product."""
    qk_norm_over: Literal["head", "heads", "turned_head"] = "head"
    """Normalise each head by itself, all heads of a position together (OLMo et al. 2024, 3.2), or each head after
    rotary positions have turned it."""
    clip_qkv: PositiveFloat | None = None
    """The largest size of a number in queries, keys and values, before positions turn them."""
    rotary_layers: tuple[NonNegativeInt, ...] | None = None
    """Numbers of the layers that rotate queries and keys, from 0, in ascending order; None for all."""

    norm: Norm = "layer"
    norm_place: Literal["pre", "post", "sandwich", "branch"] = "pre"
    """pre: x + f(Norm(x)); post: Norm(x + f(x)); sandwich: x + Norm(f(Norm(x))); branch: x + Norm(f(x))."""
    norm_gain: Literal["weight", "one_plus_weight", "none"] = "weight"
    """What a norm multiplies by: its weight, 1 + its weight (Gemma Team 2024), or nothing (Groeneveld et al. 2024)."""
    norm_eps: PositiveFloat = 1e-5
    eps_grows_every: Count | None = None
    """The epsilon is four times as large after every so many layers, as if they halved the stream (RWKV in float16)."""
    first_norm: bool = True
    """False leaves out the norm before the first block's attention, for an embedding that normalises already."""
    parallel: Literal["one_norm", "two_norms"] | None = None
    """Attention and feed-forward read the same state: x + attn(Norm(x)) + ffn(Norm(x)), with one norm for both (GPT-J)
    or one for each (GPT-NeoX)."""
    final_norm: bool | None = None
    """Normalise the last state; by default, unless norm_place is post."""

    branch_scale: PositiveFloat | None = None
    """Factor on each branch before it joins the residual stream; None for 1."""
    multipliers: Multipliers = Multipliers()
    """Further constant factors, one for each kind of part."""
    layer_scale: PositiveFloat | None = None
    """First value of a learned factor for each component of each branch, before it joins the residual stream (Touvron
    et al. 2021, CaiT, 2); None for no such factors."""

    activation: Activation = "relu"
    gated: bool = False
    """down(act(gate(x)) * up(x)) in place of down(act(up(x))) (Shazeer 2020)."""
    clamp: Clamp | None = None
    """Limits of the gate, in place of the activation."""
    experts: Experts | None = None
    """Several feed-forward parts in some layers or all; each position uses a few."""

    bias: bool = True
    """Bias in every linear layer and norm. The fields below override it."""
    qkv_bias: bool | None = None
    key_bias: bool | None = None
    """Bias of the keys; default that of queries and values."""
    out_bias: bool | None = None
    ffn_bias: bool | None = None
    down_bias: bool | None = None
    """Bias of the second feed-forward layer; default that of the first."""
    norm_bias: bool | None = None

    dropout: Probability = 0.0
    """Dropout of the embeddings, and of each branch before it joins the residual stream."""
    embed_dropout: Probability | None = None
    """Dropout of the embeddings; default `dropout`."""
    attn_dropout: Probability = 0.0
    ffn_dropout: Probability = 0.0
    """Dropout of the activations between the two feed-forward layers."""

    @property
    def head_width(self) -> int:
        """`d_head`, by default d_model / n_heads."""
        return self.d_head or self.d_model // self.n_heads

    @property
    def value_width(self) -> int:
        """Width of a head's values: `head_width`, unless `latent` says another."""
        return self.head_width if self.latent is None else self.latent.d_value

    @property
    def embed_width(self) -> int:
        """Width of the token table: that of `input`, by default d_model."""
        return (self.input.width if isinstance(self.input, TokenInput) else None) or self.d_model

    @property
    def sum_width(self) -> int:
        """Width of the vectors that are added to the tokens."""
        return self.d_model if isinstance(self.input, TokenInput) and self.input.tokens_alone else self.embed_width

    @property
    def kv_heads(self) -> int:
        return self.n_kv_heads or self.n_heads

    @property
    def has_qkv_bias(self) -> bool:
        return self.bias if self.qkv_bias is None else self.qkv_bias

    @property
    def has_key_bias(self) -> bool:
        return self.has_qkv_bias if self.key_bias is None else self.key_bias

    @property
    def has_out_bias(self) -> bool:
        return self.bias if self.out_bias is None else self.out_bias

    @property
    def has_ffn_bias(self) -> bool:
        return self.bias if self.ffn_bias is None else self.ffn_bias

    @property
    def has_down_bias(self) -> bool:
        return self.has_ffn_bias if self.down_bias is None else self.down_bias

    @property
    def repeats(self) -> int:
        """How often each block runs: n_layers / n_groups."""
        return self.n_layers // (self.n_groups or self.n_layers)

    @property
    def has_norm_bias(self) -> bool:
        """True if norms have a bias; only a LayerNorm has one."""
        return self.norm == "layer" and (self.bias if self.norm_bias is None else self.norm_bias)

    @property
    def score_scale(self) -> float:
        scale = self.attn_scale if self.attn_scale is not None else self.head_width**-0.5
        return scale * self.multipliers.keys

    @property
    def embedding_dropout(self) -> float:
        """`embed_dropout`, by default `dropout`."""
        return self.dropout if self.embed_dropout is None else self.embed_dropout

    @property
    def has_final_norm(self) -> bool:
        return self.norm_place != "post" if self.final_norm is None else self.final_norm

    @property
    def max_length(self) -> int | None:
        """The longest sequence that its positions can encode; None if there is no limit."""
        return self.positions.longest

    @property
    def distances(self) -> Disentangled | RelativeBias | None:
        """The encoding of distances for which each layer has weights; None without one."""
        positions = self.positions.scored if isinstance(self.positions, Together) else self.positions
        if isinstance(positions, RelativeBias):
            return positions if positions.each_layer else None
        return positions if isinstance(positions, Disentangled) else None

    @property
    def fixed_length(self) -> int | None:
        """The number of positions of every input; None if inputs have lengths of their own, as texts do."""
        return self.input.length if isinstance(self.input, Continuous) and self.input.is_fixed else None

    def at_layer(self, layer: int) -> Self:
        """The config with the epsilon of the norms of this layer; that of the last norm follows all layers."""
        growth = 4.0 ** min(layer // (self.eps_grows_every or self.n_layers + 1), 99)
        return self.model_copy(update={"norm_eps": self.norm_eps * growth})

    def is_windowed(self, layer: int) -> bool:
        """Returns True if `window` limits the attention of this layer."""
        return self.window is not None and _is_among(layer, self.window_layers)

    def has_mixer(self, layer: int) -> bool:
        """Returns True if `mixer` takes the place of attention in this layer."""
        return self.mixer is not None and _is_among(layer, self.mixer.layers) and self.mixes(layer)

    def has_attention(self, layer: int) -> bool:
        """Returns True if this layer mixes positions by attention."""
        return self.mixes(layer) and (not self.has_mixer(layer) or self.mixer is None or self.mixer.beside)

    def scale_of(self, part: str) -> float | None:
        """The factor on the result of attn, mix, cross or ffn, before it joins the residual stream; None for 1."""
        own = 1.0 if part == "cross" else getattr(self.multipliers, part)
        return self.branch_scale if own == 1.0 else own * (self.branch_scale or 1.0)

    def mixes(self, layer: int) -> bool:
        """Returns True if this layer mixes positions."""
        return _is_among(layer, self.mixing_layers)

    def has_ffn(self, layer: int) -> bool:
        """Returns True if this layer has a feed-forward part or experts."""
        return _is_among(layer, self.ffn_layers)

    def has_experts(self, layer: int) -> bool:
        """Returns True if this layer has experts in place of one feed-forward part."""
        return self.experts is not None and _is_among(layer, self.experts.layers) and self.has_ffn(layer)

    def is_rotary(self, layer: int) -> bool:
        """Returns True if this layer rotates queries and keys, provided that its positions are rotary."""
        return _is_among(layer, self.rotary_layers)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.d_head is None and self.d_model % self.n_heads:
            raise ValueError(f"n_heads={self.n_heads} must divide d_model={self.d_model}; or give d_head")
        if self.n_layers % (self.n_groups or 1):
            raise ValueError(f"n_groups={self.n_groups} must divide n_layers={self.n_layers}")
        if self.repeats > 1 and not self.first_norm:
            raise ValueError(f"first_norm=False makes the first block another; leave out n_groups={self.n_groups}")
        if self.n_heads % self.kv_heads:
            raise ValueError(f"n_kv_heads={self.n_kv_heads} must divide n_heads={self.n_heads}")
        for positions in filter(None, (self.positions, self.window_positions)):
            positions.check_widths(d_model=self.sum_width, d_head=self.head_width)
        if self.qk_norm and isinstance(self.distances, Disentangled):
            raise ValueError("qk_norm=True has no meaning for vectors of distances; leave one of the two out")
        if self.norm != "layer" and self.norm_bias:
            raise ValueError(f"norm_bias=True has no meaning for norm={self.norm!r}, which has no bias; leave it out")
        if isinstance(self.input, WaveInput) and self.d_model % self.input.position_groups:
            groups = self.input.position_groups
            raise ValueError(f"input.position_groups={groups} must divide d_model={self.d_model}")
        if not self.first_norm and self.norm_place != "pre":
            raise ValueError(f"first_norm=False needs norm_place='pre', got {self.norm_place!r}")
        if self.parallel and self.norm_place != "pre":
            raise ValueError(f"parallel={self.parallel!r} needs norm_place='pre', got {self.norm_place!r}")
        if self.layer_scale is not None and self.norm_place != "pre":
            raise ValueError(f"layer_scale={self.layer_scale} needs norm_place='pre', got {self.norm_place!r}")
        return self

    @model_validator(mode="after")
    def _weights(self) -> Self:
        if self.norm_gain == "none" and self.has_norm_bias:
            raise ValueError("norm_gain='none' leaves a norm without weights; set norm_bias=False")
        if self.activation == "xielu" and (self.gated or self.experts is not None):
            raise ValueError("activation='xielu' has weights of its own: leave out gated and experts")
        return self

    @model_validator(mode="after")
    def _latents(self) -> Self:
        if self.latent is None:
            return self
        if self.latent.d_shared >= self.head_width:
            raise ValueError(f"latent.d_shared={self.latent.d_shared} must be less than d_head={self.head_width}")
        if self.kv_heads != self.n_heads:
            raise ValueError(f"n_kv_heads={self.n_kv_heads} must be n_heads={self.n_heads}, of which each has its keys")
        if self.qk_norm or isinstance(self.distances, Disentangled):
            raise ValueError("latent keys have no qk_norm and no vectors of distances; leave one of the two out")
        return self

    @model_validator(mode="after")
    def _of_fixed_length(self) -> Self:
        reads, positions = self.input, self.positions
        if isinstance(reads, Continuous) and self.max_length is not None and self.max_length < reads.length:
            raise ValueError(
                f"positions.max_length={self.max_length} must be at least the {reads.length} positions of the"
                f" {reads.medium}"
            )
        if not isinstance(reads, PatchInput):
            if isinstance(positions, LearnedGrid | RotaryGrid):
                raise ValueError(f"positions of kind {positions.kind!r} need an input of patches, got {reads.kind}")
            if isinstance(reads, GridInput) and not (isinstance(positions, Rotary) and positions.sections):
                raise ValueError("an input of kind 'grid' needs positions.sections, which turn by row and column")
            return self
        if isinstance(positions, LearnedGrid) and positions.first > reads.n_first:
            raise ValueError(
                f"positions.first={positions.first} must be at most {reads.n_first}, the cells before the patches"
            )
        return self

    @model_validator(mode="after")
    def _windowed_layers(self) -> Self:
        layers = self.window_layers
        if layers is not None:
            if self.window is None:
                raise ValueError(f"window_layers={layers} needs window, the reach of these layers")
            if not layers:
                raise ValueError("window_layers=() limits no layer; leave window and window_layers out")
            self._check_layers("window_layers", layers)
        if self.window_positions is not None:
            if layers is None:
                raise ValueError("window_positions needs window_layers; if all layers are alike, set positions")
            if not isinstance(self.positions, Rotary):
                raise ValueError(f"window_positions needs rotary positions, got {self.positions.kind!r}")
        return self

    @model_validator(mode="after")
    def _rotary_layers(self) -> Self:
        layers = self.rotary_layers
        if layers is not None:
            if not isinstance(self.positions, Rotary):
                raise ValueError(f"rotary_layers={layers} needs rotary positions, got {self.positions.kind!r}")
            if not layers:
                raise ValueError("rotary_layers=() rotates in no layer; set positions to none")
            self._check_layers("rotary_layers", layers)
        return self

    @model_validator(mode="after")
    def _feed_forward(self) -> Self:
        if self.multipliers.gate != 1.0 and self.experts is not None:
            raise ValueError(f"multipliers.gate={self.multipliers.gate} has no meaning for experts; leave it out")
        if self.clamp is not None and not self.gated:
            raise ValueError("clamp needs gated=True, the gate that it limits")
        plain = not self.gated and self.activation != "xielu" and self.multipliers.gate == 1.0
        if isinstance(self.mixer, TimeMixing) and not plain:
            raise ValueError("mixer.kind='time_mixing' has its own gate: leave out gated, xielu and multipliers.gate")
        return self

    @model_validator(mode="after")
    def _layers_of_parts(self) -> Self:
        if self.experts is not None and self.experts.layers == ():
            raise ValueError("experts.layers=() gives no layer experts; leave experts out")
        if self.mixer is not None and self.mixer.beside and (self.norm_place != "pre" or self.layer_scale is not None):
            raise ValueError(f"mixer.beside=True needs norm_place='pre' without layer_scale, got {self.norm_place!r}")
        some = {"mixing_layers": self.mixing_layers, "ffn_layers": self.ffn_layers}
        if self.parallel and any(layers is not None for layers in some.values()):
            raise ValueError(f"parallel={self.parallel!r} needs both parts in each layer; leave out ffn_layers")
        some |= {
            f"{name}.layers": part.layers for name, part in (("experts", self.experts), ("mixer", self.mixer)) if part
        }
        for name, layers in some.items():
            if layers is None:
                continue
            if self.repeats > 1:
                raise ValueError(f"{name} needs different blocks; leave out n_groups={self.n_groups}")
            self._check_layers(name, layers)
        if empty := [i for i in range(self.n_layers) if not (self.mixes(i) or self.has_ffn(i))]:
            raise ValueError(f"layer {empty[0]} must be in mixing_layers or in ffn_layers")
        return self

    def _check_layers(self, name: str, layers: tuple[int, ...]) -> None:
        if list(layers) != sorted(set(layers)):
            raise ValueError(f"{name}={layers} must be in order and different")
        if layers and layers[-1] >= self.n_layers:
            raise ValueError(f"{name}={layers} must be less than n_layers={self.n_layers}")


def _is_among(layer: int, layers: tuple[int, ...] | None) -> bool:
    return layers is None or layer in layers
