"""A network on the meta device: the names and shapes of its parameters, and the ops of its forward pass."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clearhead import config as c
from clearhead.config import Init, ModelConfig
from clearhead.model.linear import parameter
from clearhead.model.ops import KINDS, Call, Mask, Op, Steps
from clearhead.model.transformer import Transformer


@dataclass(frozen=True)
class Weight:
    """One parameter of a component."""

    name: str
    """The name within the component, such as `q.weight`; empty if the component is itself the parameter."""
    shape: tuple[int, ...]
    tied_to: str | None = None
    """The parameter that is counted instead, if both are one tensor."""

    @property
    def parameters(self) -> int:
        """The number of new parameters: none if it is tied."""
        return 0 if self.tied_to else prod(self.shape)


class _Unallocated(TorchFunctionMode):
    """While open, new tensors have a shape but no memory and no random draws.

    `torch.device("meta")` alone would work, but random draws and ranges there load PyTorch's compiler, which
    takes as long as importing PyTorch.
    """

    ALLOCATIONS = (torch.empty, torch.ones, torch.zeros)
    DRAWS = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if func in self.DRAWS:
            return named["tensor"] if "tensor" in named else args[0]
        return func(*args, **(named | {"device": "meta"} if func in self.ALLOCATIONS else named))


def unallocated(config: ModelConfig) -> Transformer:
    """The network of this config with all parameters on the meta device: names and shapes at any size."""
    plain = Init(matrices="normal", depth_scaled=False)
    with _Unallocated():
        return Transformer(config.model_copy(update={"init": plain}))


def weights_of(network: Transformer) -> dict[str, Weight]:
    """Every parameter by its full name."""
    first: dict[int, str] = {}
    weights: dict[str, Weight] = {}
    for name, tensor in network.named_parameters(remove_duplicate=False):
        original = first.setdefault(id(tensor), name)
        weights[name] = Weight(name, tuple(tensor.shape), None if original == name else original)
    return weights


ROWS = 1 << 14
"""The most rows of a matrix that are float32 at a time."""


@lru_cache(maxsize=32)
def _steps_of(config: c.ModelConfig) -> Steps:
    steps = Steps()
    unallocated(config).steps(steps)
    return steps


def ops_of(config: c.ModelConfig) -> tuple[Op, ...]:
    """Every step from ids or pixels to logits, in the order in which they run."""
    return tuple(_steps_of(config).ops)


def masks_of(config: c.ModelConfig) -> dict[str, Mask]:
    """The masks by the names that the ops use."""
    return dict(_steps_of(config).masks)


@torch.no_grad()
def evaluated(op: Op, inputs: list[Tensor], network: nn.Module, mask: Mask | None = None) -> Tensor:
    """The result of an op for these inputs of one sequence, with float32 weights. Ops that mask need `mask`."""
    kept = [parameter(network, name).detach() for name in op.weights]
    evaluate = KINDS[op.op].evaluate
    if op.op == "lookup":  # A table may be large, so only its rows become float32.
        return evaluate(Call(op, inputs, [weight.cpu() for weight in kept], mask)).float()
    if op.op == "linear" and len(kept[0]) > ROWS:
        pieces = zip(*(weight.split(ROWS) for weight in kept), strict=True)
        return torch.cat([evaluate(Call(op, inputs, [w.float().cpu() for w in piece], mask)) for piece in pieces], -1)
    return evaluate(Call(op, inputs, [weight.float().cpu() for weight in kept], mask))
