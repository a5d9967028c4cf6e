"""y = x W^T + b: what may stand in a network where an `nn.Linear` stood, and how it gets there."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn


class LinearMap(nn.Module, ABC):
    """A linear map that does not keep its weight as a parameter, or that adds something to it."""

    bias: Tensor | None

    @abstractmethod
    def effective_weight(self) -> Tensor:
        """f d: the matrix by which the map multiplies, computed anew. Writing to it changes nothing."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """... d -> ... f."""


def effective_weight(linear: nn.Linear | LinearMap) -> Tensor:
    """f d: the matrix by which any linear map of a network multiplies."""
    return linear.weight if isinstance(linear, nn.Linear) else linear.effective_weight()


def shapes(network: nn.Module) -> Iterator[torch.Size]:
    """f d of each linear map of a network."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            yield module.weight.shape


def is_plain(module: nn.Module) -> bool:
    """Whether `module` computes x W^T + b and nothing else: no subclass, no hook, no patched `forward`."""
    is_watched = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    return type(module) is nn.Linear and not is_watched


def replace(network: nn.Module, new: Callable[[nn.Linear], LinearMap | None]) -> None:
    """Put `new(linear)` in the place of each plain linear map, unless it is None."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and is_plain(child) and (made := new(child)) is not None:
                setattr(module, name, made)


def shared_copy(network: nn.Module, instead: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """A copy of the tree of modules that shares parameters, buffers, settings and hooks with the original.

    A key of `instead` is represented by its value.
    """
    copies = {id(old): new for old, new in instead.items()}

    def copied(module: nn.Module) -> nn.Module:
        if (made := copies.get(id(module))) is None:
            made = copies[id(module)] = copy.copy(module)
            children = module._modules.items()
            made._modules = {name: None if child is None else copied(child) for name, child in children}
        return made

    return copied(network)
