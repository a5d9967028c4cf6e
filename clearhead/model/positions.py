"""Position encodings: added to the embedding (sinusoidal, learned), applied to queries and keys as a rotation (rotary),
or added to the scores (T5's relative bias, ALiBi), and those of a grid of patches. `distances.py` has the scores by
distance that each attention makes with weights of its own.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model.attention_bias import (
    NotAdded,
    NotRelated,
    NotScored,
    NotTurned,
    PositionEncoding,
    Relation,
    Rotation,
)
from clearhead.model.distances import LayerBiasEncoding, buckets, relative_bias_steps
from clearhead.model.fast.tensor_parallel import Division
from clearhead.model.layout import axes_of
from clearhead.model.linear import look_up
from clearhead.model.ops import KINDS, Call, Kind, Sized, Steps


class NoEncoding(NotAdded, NotTurned, NotScored, NotRelated):
    """Adds no position."""

    def __init__(self, config: c.NoPositions, stack: c.StackConfig, *, causal: bool) -> None:
        super().__init__()


class SinusoidalEncoding(NotTurned, NotScored, NotRelated):
    """PE(p, 2i) = sin((p + offset) w_i), PE(p, 2i+1) = cos(same), w_i = base^(-2i/d)   (Vaswani et al. 2017, 3.5)"""

    def __init__(self, config: c.Sinusoidal, stack: c.StackConfig, *, causal: bool) -> None:
        super().__init__()
        self.config, self.d_model = config, stack.sum_width

    def embedding(self, positions: Tensor) -> Tensor:
        return sinusoids(positions + self.config.offset, self.d_model, self.config.base, self.config.layout)

    def embedding_steps(self, to: Steps, out: str, path: str, numbers: str) -> str:
        by = {"base": self.config.base, "width": self.d_model}
        if self.config.offset:
            by["offset"] = self.config.offset
        return to.do(out, "sinusoid", numbers, by=by, how=self.config.layout)


def sinusoids(positions: Tensor, width: int, base: float = 10_000.0, layout: str = "interleaved") -> Tensor:
    """... -> ... width: the sines and cosines of positions, computed in float64."""
    exact = torch.float32 if positions.device.type == "mps" else torch.float64  # MPS has no float64
    i = torch.arange(0, width, 2, device=positions.device, dtype=exact)
    angle = positions[..., None] * base ** (-i / width)
    waves = torch.stack([angle.sin(), angle.cos()], -1 if layout == "interleaved" else -2)
    return waves.flatten(-2).to(torch.get_default_dtype())


def _sinusoid(call: Call) -> Tensor:
    by = call.op.by
    return sinusoids(call.x[0] + int(by.get("offset", 0)), int(by["width"]), by["base"], call.op.how)


KINDS["sinusoid"] = Kind(_sinusoid, lambda call: (*call.x[0].shape, int(call.op.by["width"])))


class LearnedEncoding(NotTurned, NotScored, NotRelated):
    """PE(p) = table[p + offset]"""

    def __init__(self, config: c.Learned, stack: c.StackConfig, *, causal: bool) -> None:
        super().__init__()
        self.offset = config.offset
        self.table = nn.Embedding(config.max_length + config.offset, stack.sum_width)

    def embedding(self, positions: Tensor) -> Tensor:
        return look_up(self.table, positions + self.offset, "positions")

    def embedding_steps(self, to: Steps, out: str, path: str, numbers: str) -> str:
        return to.do(out, "lookup", numbers, weights=(f"{path}.table.weight",), by={"offset": self.offset})


class RotaryEncoding(NotAdded, NotScored, NotRelated):
    """Each pair of a head's components turns by p w_i, so that q.k depends on the distance (Su et al. 2021, 3.2)."""

    def __init__(self, config: c.Rotary, stack: c.StackConfig, *, causal: bool) -> None:
        super().__init__()
        self.frequencies, self.magnitude = rotary_frequencies(config, stack.head_width)
        self.sections = config.sections

    def rotation(self, positions: Tensor) -> Rotation:
        return rotation(positions, self.frequencies, self.magnitude, self.sections)

    def rotation_steps(self, to: Steps, out: str, x: str, numbers: str) -> str:
        by = {"magnitude": self.magnitude, **dict(zip(SECTIONS, self.sections or (), strict=False))}
        return to.do(out, "rotate", x, numbers, numbers=tuple(self.frequencies), by=by)


SECTIONS = ("places", "rows", "columns")


def rotation(
    positions: Tensor, frequencies: Sequence[float], magnitude: float = 1.0, sections: Sequence[int] | None = None
) -> Rotation:
    """b t -> the rotation by the angle of each position and frequency."""
    where = positions[..., None]
    if sections is not None:
        of_each = zip(axes_of(where), sections, strict=True)
        where = torch.cat([axis.expand(*positions.shape, n) for axis, n in of_each], -1)
    return Rotation(where * torch.tensor(frequencies, device=positions.device), magnitude)


def rotary_frequencies(config: c.Rotary, d_head: int) -> tuple[list[float], float]:
    """The angle of each pair of a head's components for one position, and the factor on rotated vectors.

    They are plain numbers, because network.bfloat16() would round a buffer and the meta device would lose it.
    """
    width = config.rotated(d_head)
    w = config.base ** (-torch.arange(0, width, 2, dtype=torch.float64, device="cpu") / width)
    w = w if config.frequencies is None else torch.tensor(config.frequencies, dtype=torch.float64, device="cpu")
    w, magnitude = scaled_frequencies(w, config)
    return w.tolist(), magnitude


def _rotate(call: Call) -> Tensor:
    x, positions = call.x
    by = call.op.by
    sections = [int(by[name]) for name in SECTIONS if name in by]
    return rotation(positions[None], call.op.numbers, by["magnitude"], sections or None)(x[None])[0]


KINDS["rotate"] = Kind(_rotate)


def scaled_frequencies(w: Tensor, config: c.Rotary) -> tuple[Tensor, float]:
    """Frequencies for longer contexts, and the factor on rotated vectors, as the config's scaling says."""
    match config.scaling:
        case None | c.DynamicScaling():
            return w, 1.0
        case c.LinearScaling(factor=factor):
            return w / factor, 1.0
        case c.LongScaling() as s:
            return w / torch.tensor(s.divisors, dtype=w.dtype, device=w.device), s.attention_factor
        case c.WavelengthScaling() as s:
            turns = s.original_length * w / (2 * math.pi)
            blend = ((turns - s.low_factor) / (s.high_factor - s.low_factor)).clamp(0, 1)
            return w * (blend + (1 - blend) / s.factor), 1.0
        case c.YarnScaling() as s:
            width = 2 * len(w)

            def pair_with(turns: float) -> float:
                return width * math.log(s.original_length / (turns * 2 * math.pi)) / (2 * math.log(config.base))

            ends = pair_with(s.beta_fast), pair_with(s.beta_slow)
            low, high = (math.floor(ends[0]), math.ceil(ends[1])) if s.truncate else ends
            low, high = max(low, 0), min(high, width - 1)
            ramp = ((torch.arange(len(w), dtype=w.dtype, device=w.device) - low) / ((high - low) or 1e-3)).clamp(0, 1)
            return w * (1 - ramp) + w / s.factor * ramp, s.magnitude


class RelativeEncoding(NotAdded, NotTurned, NotRelated):
    """bias[h, bucket(key - query)], buckets growing with the logarithm of the distance (Raffel et al. 2019, 2.1)."""

    learns_bias = True
    divisions = (Division("table", "heads", "outputs"),)

    def __init__(self, config: c.RelativeBias, stack: c.StackConfig, *, causal: bool) -> None:
        super().__init__()
        self.config, self.causal = config, causal
        self.table = nn.Embedding(config.n_buckets, stack.n_heads)

    def score_bias(self, query: Tensor, key: Tensor) -> Tensor:
        return self.table(buckets(query, key, self.config, causal=self.causal)).permute(0, 3, 1, 2)

    def score_bias_steps(self, to: Steps, out: str, path: str, numbers: str) -> str:
        return relative_bias_steps(to, out, path, numbers, self.config, causal=self.causal)


class ALiBiEncoding(NotAdded, NotTurned, NotRelated):
    """bias = -slope_h |query - key|, slopes 2^(-8h/n) for h = 1..n   (Press et al. 2021, 3)"""

    divisions = (Division("slopes", "heads"),)

    def __init__(self, config: c.ALiBi, stack: c.StackConfig, *, causal: bool) -> None:
        super().__init__()
        n = 2 ** math.floor(math.log2(stack.n_heads))
        slopes = [2 ** (-8 * h / n) for h in range(1, n + 1)]
        slopes += [2 ** (-4 * h / n) for h in range(1, 2 * (stack.n_heads - n), 2)]
        self.slopes: list[float] = slopes

    def score_bias(self, query: Tensor, key: Tensor) -> Tensor:
        return alibi(query, key, self.slopes)

    def score_bias_steps(self, to: Steps, out: str, path: str, numbers: str) -> str:
        return to.do(out, "alibi", numbers, numbers=tuple(self.slopes))


def alibi(query: Tensor, key: Tensor, slopes: Sequence[float]) -> Tensor:
    """b t, b s -> b h t s: see `ALiBiEncoding`."""
    distance = (query[:, None, :, None] - key[:, None, None, :]).abs()
    return -torch.tensor(slopes, device=query.device)[:, None, None] * distance


KINDS["alibi"] = Kind(
    lambda call: alibi(call.x[0][None], call.x[0][None], call.op.numbers)[0],
    lambda call: (len(call.op.numbers), *call.x[0].shape, *call.x[0].shape),
)


def patches(stack: c.StackConfig) -> c.PatchInput:
    """The patches that a stack with positions in a grid reads."""
    assert isinstance(stack.input, c.PatchInput)
    return stack.input


class LearnedGridEncoding(NotTurned, NotScored, NotRelated):
    """PE(cell) = table[cell], of registers 0, of patches interpolated where the grid is another (Oquab et al. 2023)."""

    def __init__(self, config: c.LearnedGrid, stack: c.StackConfig, *, causal: bool) -> None:
        super().__init__()
        reads = patches(stack)
        self.table = nn.Embedding(config.rows, stack.d_model)
        self.by: dict[str, float] = {
            "first": config.first,
            "registers": reads.n_first - config.first,
            "from": config.side,
            "to": reads.side,
            "antialias": float(config.antialias),
        }

    def embedding(self, positions: Tensor) -> Tensor:
        return spread(self.table.weight, self.by)[positions]

    def embedding_steps(self, to: Steps, out: str, path: str, numbers: str) -> str:
        return to.do(out, "spread", weights=(f"{path}.table.weight",), by=self.by)


def spread(table: Tensor, by: dict[str, float]) -> Tensor:
    """(first + from^2) d -> (first + registers + to^2) d: see `LearnedGridEncoding`; interpolates in float32."""
    first, registers, old, new = (int(by[name]) for name in ("first", "registers", "from", "to"))
    rows = table[first:]
    if old != new:
        grid = rows.T.unflatten(1, (old, old))[None].float()
        grid = F.interpolate(grid, size=(new, new), mode="bicubic", align_corners=False, antialias=by["antialias"] > 0)
        rows = grid[0].flatten(1).T.to(table.dtype)
    return torch.cat([table[:first], table.new_zeros(registers, table.shape[1]), rows])


def _spread_shape(call: Sized) -> tuple[int, ...]:
    first, registers, new = (int(call.op.by[name]) for name in ("first", "registers", "to"))
    return first + registers + new**2, call.w[0][1]


class RotaryGridEncoding(NotAdded, NotScored, NotRelated):
    """Half of the pairs of a head turn by 2 pi y w_i, the others by 2 pi x w_i; y and x are a patch's place in the
    picture, from -1 to 1, and w_i = base^(-4i/d_head)   (Simeoni et al. 2025, 3.2, DINOv3)
    """

    def __init__(self, config: c.RotaryGrid, stack: c.StackConfig, *, causal: bool) -> None:
        super().__init__()
        d_head = stack.head_width
        self.frequencies = [2 * math.pi * config.base ** (-4 * i / d_head) for i in range(d_head // 4)]
        self.first, self.side = patches(stack).n_first, patches(stack).side

    def rotation(self, positions: Tensor) -> Rotation:
        return Rotation(angles(positions, self.frequencies, first=self.first, side=self.side))

    def rotation_steps(self, to: Steps, out: str, x: str, numbers: str) -> str:
        by = {"first": float(self.first), "side": float(self.side)}
        return to.do(out, "rotate_grid", x, numbers, numbers=tuple(self.frequencies), by=by)


def angles(cells: Tensor, frequencies: list[float], *, first: int, side: int) -> Tensor:
    """... -> ... d_head/2: the angles of cells, by their numbers. Cells before the patches have angle 0."""
    patch = (cells - first).clamp(min=0)
    y, x = (2 * (place + 0.5) / side - 1 for place in (patch // side, patch % side))
    w = torch.tensor(frequencies, device=cells.device)
    found = torch.cat([y[..., None] * w, x[..., None] * w], -1)
    return found.masked_fill((cells < first)[..., None], 0.0)


def _rotate_grid(call: Call) -> Tensor:
    by = call.op.by
    angle = angles(call.x[1].long(), list(call.op.numbers), first=int(by["first"]), side=int(by["side"]))
    return Rotation(angle[None])(call.x[0][None])[0]


KINDS |= {
    "spread": Kind(lambda call: spread(call.w[0], call.op.by), _spread_shape),
    "rotate_grid": Kind(_rotate_grid),
}


def relative_bias(config: c.RelativeBias, stack: c.StackConfig, *, causal: bool) -> PositionEncoding:
    """The encoding of a bias by distance, which is one for all layers or another in each layer."""
    return (LayerBiasEncoding if config.each_layer else RelativeEncoding)(config, stack, causal=causal)


class TogetherEncoding(NotTurned):
    """One encoding added to the embedding, another to the scores   (Song et al. 2020, MPNet)"""

    def __init__(self, config: c.Together, stack: c.StackConfig, *, causal: bool) -> None:
        super().__init__()
        self.added: PositionEncoding = config.added.build(stack, causal=causal)
        self.scored: PositionEncoding = config.scored.build(stack, causal=causal)
        self.learns_bias = self.scored.learns_bias

    def embedding(self, positions: Tensor) -> Tensor | None:
        return self.added.embedding(positions)

    def embedding_steps(self, to: Steps, out: str, path: str, numbers: str) -> str | None:
        return self.added.embedding_steps(to, out, f"{path}.added", numbers)

    def score_bias(self, query: Tensor, key: Tensor) -> Tensor | None:
        return self.scored.score_bias(query, key)

    def score_bias_steps(self, to: Steps, out: str, path: str, numbers: str) -> str | None:
        return self.scored.score_bias_steps(to, out, f"{path}.scored", numbers)

    def relation(self, query: Tensor, key: Tensor) -> Relation | None:
        return self.scored.relation(query, key)

    def relation_steps(self, to: Steps, path: str) -> str | None:
        return self.scored.relation_steps(to, f"{path}.scored")
