"""Tensors of which each process holds a part. With one process all tensors are whole, and nothing is imported."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeGuard

from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_part(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Whether this process holds only a part of the tensor."""
    if type(tensor) in (Tensor, nn.Parameter):
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def whole(tensor: Tensor) -> Tensor:
    """The whole tensor. Every process must call this at the same time."""
    return tensor.full_tensor() if is_part(tensor) else tensor


def part(tensor: Tensor, like: Tensor) -> Tensor:
    """This process's part of a tensor that every process holds whole, divided as `like` is."""
    if not is_part(like):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def parts(tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, each divided like the tensor of the same name and shape in `like`; the others unchanged."""
    return {
        name: part(tensor, like[name]) if name in like and like[name].shape == tensor.shape else tensor
        for name, tensor in tensors.items()
    }
