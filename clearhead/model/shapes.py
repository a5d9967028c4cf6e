"""The shapes of a network's parameters, from the network itself, built without memory for them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from clearhead.config import Init, ModelConfig
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
    for name, parameter in network.named_parameters(remove_duplicate=False):
        original = first.setdefault(id(parameter), name)
        weights[name] = Weight(name, tuple(parameter.shape), None if original == name else original)
    return weights
