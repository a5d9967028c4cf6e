"""Every recorded value again, from the recorded values that its op names: what the page shows is what was done."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead import config as c
from clearhead.explorer.recording.ops import Mask, Op
from clearhead.model.feedforward import ACTIVATIONS
from clearhead.model.positions import RelativeEncoding


@dataclass(frozen=True)
class Difference:
    """How far a value made again is from the one that was recorded."""

    most: float
    """The largest absolute difference."""
    relative: float
    """That, as a share of the largest number of its tensor."""


def closed_cells(mask: Mask, queries: int, keys: int) -> Tensor:
    """t s, bool: the cells where attention may not go."""
    t, s = torch.arange(queries)[:, None], torch.arange(keys)
    closed = (s > t) if mask.causal else torch.zeros(queries, keys, dtype=torch.bool)
    return closed if mask.window is None else closed | ((s - t).abs() >= mask.window)


@torch.no_grad()
def differences(
    ops: tuple[Op, ...],
    values: Mapping[str, Tensor],
    *,
    by_hand: frozenset[str],
    numbers: Mapping[str, Tensor],
    masks: Mapping[str, Mask],
    network: nn.Module,
) -> dict[str, Difference]:
    """By address, of each recorded value that an op made. A value set by hand is an input like any other."""
    made: dict[str, Tensor] = dict(numbers)
    found: dict[str, Difference] = {}
    for op in ops:
        if op.out in values and op.out in by_hand:
            continue
        inputs = [values[name] if name in values else made[name] for name in op.inputs]
        if op.op == "mask":
            result = inputs[0].masked_fill(closed_cells(masks[op.how], *inputs[0].shape[-2:]), float("-inf"))
        else:
            result = evaluated(op, inputs, network)
        if op.out not in values:
            made[op.out] = result
            continue
        recorded = values[op.out]
        if recorded.shape != result.shape:
            raise ValueError(f"{op.out}: {op.op} makes {tuple(result.shape)}, got {tuple(recorded.shape)}")
        most = float((result - recorded).abs().max())
        found[op.out] = Difference(most, most / max(float(recorded.abs().max()), 1e-30))
    return found


@torch.no_grad()
def evaluated(op: Op, inputs: list[Tensor], network: nn.Module) -> Tensor:
    """What an op, other than a mask, makes of these."""
    weights = [network.get_parameter(name).detach().float().cpu() for name in op.weights]
    return _COMPUTE[op.op](_Step(op, inputs, weights))


@dataclass(frozen=True)
class _Step:
    """An op, with its inputs and its weights."""

    op: Op
    x: list[Tensor]
    w: list[Tensor]


def _lookup(s: _Step) -> Tensor:
    return s.w[0][s.x[0].long() + int(s.op.by.get("offset", 0))]


def _unfold(s: _Step) -> Tensor:
    size = int(s.op.by["size"])
    channels, height, width = s.x[0].shape
    cells = s.x[0].reshape(channels, height // size, size, width // size, size)
    return cells.permute(1, 3, 0, 2, 4).reshape(-1, channels * size * size)


def _sinusoid(s: _Step) -> Tensor:
    i = torch.arange(0, s.op.by["width"], 2, dtype=torch.float64)
    angle = s.x[0].double()[:, None] * s.op.by["base"] ** (-i / s.op.by["width"])
    waves = torch.stack([angle.sin(), angle.cos()], -1 if s.op.how == "interleaved" else -2)
    return waves.flatten(-2).float()


def _linear(s: _Step) -> Tensor:
    return F.linear(s.x[0], s.w[0], s.w[1] if len(s.w) > 1 else None)


def _rstd(s: _Step) -> Tensor:
    centred = s.x[0] - s.x[1] if len(s.x) > 1 else s.x[0]
    return (centred.square().mean(-1, keepdim=True) + s.op.by["eps"]).rsqrt()


def _norm(s: _Step) -> Tensor:
    centred = s.x[0] - s.x[1] if len(s.x) > 2 else s.x[0]
    out = centred * s.x[-1] * s.w[0]
    return out + s.w[1] if len(s.w) > 1 else out


def _rotate(s: _Step) -> Tensor:
    angle = s.x[1].float()[:, None] * torch.tensor(s.op.numbers)
    cos, sin = angle.cos() * s.op.by["magnitude"], angle.sin() * s.op.by["magnitude"]
    n = len(s.op.numbers)
    first, second, kept = s.x[0][..., :n], s.x[0][..., n : 2 * n], s.x[0][..., 2 * n :]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, kept], -1)


def _relative_bias(s: _Step) -> Tensor:
    n, far = int(s.op.by["buckets"]), int(s.op.by["distance"])
    encoding = RelativeEncoding(c.RelativeBias(n_buckets=n, max_distance=far), 1, causal=s.op.how == "past")
    return s.w[0][encoding.bucket(s.x[0] - s.x[0][:, None])].permute(2, 0, 1)


def _alibi(s: _Step) -> Tensor:
    return -torch.tensor(s.op.numbers)[:, None, None] * (s.x[0] - s.x[0][:, None]).abs()


def _pool(s: _Step) -> Tensor:
    return {"first": s.x[0][0], "last": s.x[0][-1], "mean": s.x[0].mean(0)}[s.op.how]


def _project(s: _Step) -> Tensor:
    heads, _, width = s.x[0].shape
    return torch.einsum("htk,dhk->htd", s.x[0], s.w[0].unflatten(1, (heads, width)))


def _activation(s: _Step) -> Tensor:
    return s.x[0].tanh() if s.op.how == "tanh" else ACTIVATIONS[s.op.how](s.x[0])


def _sum_heads(s: _Step) -> Tensor:
    return s.x[0].sum(0) + s.w[0] if s.w else s.x[0].sum(0)


_COMPUTE: dict[str, Callable[[_Step], Tensor]] = {
    "lookup": _lookup,
    "unfold": _unfold,
    "prepend": lambda s: torch.cat([s.w[0][None], s.x[0]]),
    "sinusoid": _sinusoid,
    "copy": lambda s: s.x[0],
    "add": lambda s: s.x[0] + s.x[1],
    "scale": lambda s: s.x[0] * s.op.by["factor"],
    "soft_cap": lambda s: s.op.by["cap"] * (s.x[0] / s.op.by["cap"]).tanh(),
    "multiply": lambda s: s.x[0] * s.x[1],
    "activation": _activation,
    "linear": _linear,
    "split": lambda s: s.x[0].unflatten(-1, (int(s.op.by["heads"]), -1)).transpose(0, 1),
    "repeat": lambda s: s.x[0].repeat_interleave(int(s.op.by["times"]), 0),
    "mean": lambda s: s.x[0].mean(-1, keepdim=True),
    "rstd": _rstd,
    "norm": _norm,
    "rotate": _rotate,
    "relative_bias": _relative_bias,
    "alibi": _alibi,
    "matmul_nt": lambda s: s.x[0] @ s.x[1].mT,
    "matmul": lambda s: s.x[0] @ s.x[1],
    "softmax": lambda s: s.x[0].softmax(-1),
    "project": _project,
    "sum_heads": _sum_heads,
    "pool": _pool,
}
