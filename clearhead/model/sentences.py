"""The steps from a text's states to one vector: pooling, dense layers, norms, length 1   (Reimers and
Gurevych 2019).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from clearhead.brief import brief

Mode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    kind.__name__: kind
    for kind in (
        *(nn.Identity, nn.Tanh, nn.ReLU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.ELU, nn.SELU, nn.CELU, nn.Mish, nn.ReLU6),
        *(nn.LeakyReLU, nn.Softplus, nn.Softsign, nn.LogSigmoid, nn.Tanhshrink, nn.Hardtanh, nn.Hardswish),
        *(nn.Hardsigmoid, nn.Hardshrink, nn.Softshrink),
    )
}
"""The activations of a dense layer, each with its default arguments."""


@dataclass(frozen=True)
class Pooling:
    """b t d -> b (modes d): the pooled vectors of all modes, concatenated."""

    modes: tuple[Mode, ...] = ("mean",)
    includes_prompt: bool = True


@dataclass(frozen=True)
class Dense:
    """act(x W^T + b), plus x or x R^T if there is a residual."""

    __repr__ = brief

    weight: Tensor
    bias: Tensor | None
    activation: str
    residual: bool = False
    residual_weight: Tensor | None = None


@dataclass(frozen=True)
class VectorLayerNorm:
    """LayerNorm of the vector."""

    __repr__ = brief

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class Unit:
    """The vector scaled to length 1."""


@dataclass(frozen=True)
class First:
    """The first n numbers of the vector (Kusupati et al. 2022)."""

    n: int


@dataclass(frozen=True)
class Dropout:
    """Dropout of the vector, which does nothing but in training."""

    share: float


Step: TypeAlias = Pooling | Dense | VectorLayerNorm | Unit | First | Dropout


def vectors(steps: Sequence[Step], states: Tensor, valid: Tensor | None, *, prompt: int = 0) -> Tensor:
    """b t d -> b d: the steps in order. `prompt` is the number of cells at the start of each row that hold the prompt.

    `valid` is b t, None if every cell is real. Padding must be on the right.
    """
    valid = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device) if valid is None else valid
    x = states
    for step in steps:
        match step:
            case Pooling():
                kept = (
                    valid if step.includes_prompt else valid & (torch.arange(valid.shape[1], device=x.device) >= prompt)
                )
                x = torch.cat([pooled(states, kept, mode) for mode in step.modes], dim=-1)
            case Dense():
                x = _dense(step, x)
            case VectorLayerNorm():
                x = nn.functional.layer_norm(x, x.shape[-1:], step.weight.to(x), step.bias.to(x))
            case Dropout():
                pass
            case Unit():
                x = nn.functional.normalize(x, dim=-1)
            case First():
                x = x[..., : step.n]
    return x


def pooled(x: Tensor, valid: Tensor, mode: Mode) -> Tensor:
    """b t d -> b d, over the cells in `valid`; sums are at least float32."""
    mask = valid[..., None]
    wide = torch.promote_types(x.dtype, torch.float32)
    match mode:
        case "cls":
            return _at(x, valid.int().argmax(1))
        case "lasttoken":
            return _at(x * mask, valid.shape[1] - 1 - valid.flip(1).int().argmax(1))
        case "max":
            return x.masked_fill(~mask, -torch.inf).amax(1)
        case "weightedmean":
            # The weight of a token is its number in the row, counted from 1.
            weights = mask * torch.arange(1, x.shape[1] + 1, device=x.device, dtype=wide)[:, None]
            return ((x * weights).sum(1) / weights.sum(1).clamp(min=1e-9)).to(x.dtype)
        case "mean" | "mean_sqrt_len_tokens":
            n = mask.sum(1, dtype=wide).clamp(min=1e-9)
            return ((x * mask).sum(1, dtype=wide) / (n if mode == "mean" else n.sqrt())).to(x.dtype)


def _at(x: Tensor, which: Tensor) -> Tensor:
    return x[torch.arange(x.shape[0], device=x.device), which]


def _dense(step: Dense, x: Tensor) -> Tensor:
    bias = None if step.bias is None else step.bias.to(x)
    out = ACTIVATIONS[step.activation]()(nn.functional.linear(x, step.weight.to(x), bias))
    if not step.residual:
        return out
    return out + (x if step.residual_weight is None else nn.functional.linear(x, step.residual_weight.to(x)))
