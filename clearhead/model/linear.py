"""y = x W^T + b: linear maps that can replace an `nn.Linear` in a network, and how to put them there.

Everything that needs the matrix of a linear map asks the map for it. A new kind of map, such as an adapter or another
number format, is a subclass of `LinearMap` that `replace` puts into a network. No other module needs to know it.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import UserError
from clearhead.model.mode import Part

LEVELS = 127
"""Integers on each side of 0."""
TINY = torch.finfo(torch.float32).tiny
TOGETHER = 1 << 18
"""Numbers that are rounded at once, so that a large matrix needs little memory beside itself."""


class RoundedTable(Part):
    """The rows of a token table with a symmetric scale for each: the largest number of a row becomes 127.

    It reads rows as the `nn.Embedding` does that it replaces, and cannot be trained.
    """

    integers: Tensor
    scale: Tensor

    def __init__(self, table: Tensor, dtype: torch.dtype) -> None:
        """Rounds a table, v d. `dtype` is the type of the rows that are returned."""
        super().__init__()
        self.num_embeddings, self.embedding_dim = table.shape
        integers, scale = rounded(table)
        self.register_buffer("integers", integers)
        self.register_buffer("scale", scale[:, None].to(dtype))

    def effective_weight(self) -> Tensor:
        """v d: the rows, computed anew. Writing to it changes nothing."""
        return self.integers * self.scale

    def forward(self, ids: Tensor) -> Tensor:
        """... -> ... d. Raises IndexError for an id without a row."""
        return F.embedding(ids, self.integers) * F.embedding(ids, self.scale)


Table = nn.Embedding | RoundedTable


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """f d -> the integers, f d of int8, and the scale of each row, f of float32."""
    integers = torch.empty(weight.shape, dtype=torch.int8, device=weight.device)
    scale = torch.empty(len(weight), device=weight.device)
    at_once = max(1, TOGETHER // weight.shape[1])
    for rows, into, s in zip(*(x.split(at_once) for x in (weight, integers, scale)), strict=True):
        s.copy_((rows.abs().amax(1).float() / LEVELS).clamp_min_(TINY))
        into.copy_((rows / s[:, None]).round_())
    return integers, scale


class LinearMap(Part, ABC):
    """A linear map that does not keep its matrix as a parameter, or that adds something to it.

    A map around another one calls it, and asks for its `effective_weight`: it may be of any kind.
    """

    rounded = ""
    """The number format to which the stored weights were rounded, if they were."""

    def __init__(self, in_features: int, out_features: int, bias: Tensor | None) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = in_features, out_features, bias

    @abstractmethod
    def effective_weight(self) -> Tensor:
        """f d: the matrix by which the map multiplies, computed anew. Writing to it changes nothing."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """... d -> ... f."""


def effective_weight(module: nn.Linear | LinearMap | Table) -> Tensor:
    """f d: the matrix by which any linear map of a network multiplies, or whose rows a token table returns."""
    return module.weight if isinstance(module, nn.Linear | nn.Embedding) else module.effective_weight()


def narrowed(x: Tensor, *linears: nn.Module) -> Tensor:
    """The states in the type in which autocast lets these maps read them: one copy for all, not one for each."""
    kind = x.device.type
    if not torch.is_autocast_enabled(kind) or x.dtype != torch.float32:
        return x
    if not all(isinstance(linear, nn.Linear) for linear in linears):
        return x  # Rounded maps read float32.
    return x.to(torch.get_autocast_dtype(kind))


def parameter(network: nn.Module, name: str) -> Tensor:
    """The parameter of this name, such as `decoder.blocks.0.attn.q.weight`, with any linear maps and tables."""
    path, _, last = name.rpartition(".")
    module = network.get_submodule(path)
    stored = not isinstance(module, LinearMap | RoundedTable) or last != "weight"
    return getattr(module, last) if stored else module.effective_weight()


def plain(linear: LinearMap | RoundedTable) -> nn.Linear | nn.Embedding:
    """The `nn.Linear` of the same effective weight and the same bias, or the `nn.Embedding`, frozen."""
    if isinstance(linear, RoundedTable):
        return nn.Embedding.from_pretrained(linear.effective_weight())
    made = nn.Linear(linear.in_features, linear.out_features, bias=False, device="meta")
    made.weight = nn.Parameter(linear.effective_weight().detach(), requires_grad=False)
    if linear.bias is not None:
        made.bias = nn.Parameter(linear.bias.detach(), requires_grad=False)
    return made.train(linear.training)


def is_rounded(network: nn.Module) -> bool:
    """True if a linear map has rounded its weights."""
    return any(isinstance(module, LinearMap) and module.rounded for module in network.modules())


def refuse_rounded(network: nn.Module, what: str) -> None:
    """Raises UserError, which names `what`, if a linear map has rounded its weights."""
    for module in network.modules():
        if isinstance(module, LinearMap) and module.rounded:
            kind = module.rounded
            raise UserError(f"{what}: expected weights as they were stored, got {kind}; try load(…) without {kind}")


def shapes(network: nn.Module) -> Iterator[torch.Size]:
    """f d of each linear map of a network."""
    for module in network.modules():
        if isinstance(module, nn.Linear | LinearMap):
            yield torch.Size((module.out_features, module.in_features))


def has_weight(module: nn.Module) -> bool:
    """True if `effective_weight` is known to be the matrix by which `module` multiplies."""
    return type(module) is nn.Linear or isinstance(module, LinearMap)


def is_plain(module: nn.Module) -> bool:
    """True if `module` computes x W^T + b and nothing else: no subclass, no hook, no patched `forward`."""
    is_watched = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    return type(module) is nn.Linear and not is_watched


def replace(network: nn.Module, new: Callable[[nn.Linear], LinearMap | None]) -> None:
    """Replaces each plain linear map by `new(linear)`, unless that is None."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and is_plain(child) and (made := new(child)) is not None:
                setattr(module, name, made)


def shared_copy(network: nn.Module, instead: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """A copy of the tree of modules that shares parameters, buffers, settings and hooks with the original.

    Each key of `instead` is replaced by its value. Modules that contain none of them are the original's own.
    """
    copies = {id(old): new for old, new in instead.items()}

    def copied(module: nn.Module) -> nn.Module:
        if (made := copies.get(id(module))) is None:
            children = {name: None if child is None else copied(child) for name, child in module._modules.items()}
            made = module
            if any(child is not module._modules[name] for name, child in children.items()):
                made = copy.copy(module)
                made._modules = children
            copies[id(module)] = made
        return made

    return copied(network)


def look_up(table: Table, index: Tensor, what: str) -> Tensor:
    """The table's rows. Raises UserError for an index without a row, but only on a CPU: other devices would wait."""
    try:
        return table(index)
    except IndexError:
        outside = index[(index < 0) | (index >= table.num_embeddings)]
        raise UserError(
            f"{what}: expected numbers in 0..{table.num_embeddings - 1}, the rows of the table, got {int(outside[0])}"
        ) from None
