"""Tensors of which each process holds a part. Where there is one process, everything is whole and nothing is loaded."""

from collections.abc import Mapping

from torch import Tensor, nn


def is_part(tensor: Tensor) -> bool:
    """Whether this process holds only a part of it."""
    if type(tensor) in (Tensor, nn.Parameter):
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def whole(tensor: Tensor) -> Tensor:
    """All of it: every process must ask at the same time."""
    if not is_part(tensor):
        return tensor
    from torch.distributed.tensor import DTensor

    assert isinstance(tensor, DTensor)
    return tensor.full_tensor()


def part(tensor: Tensor, like: Tensor) -> Tensor:
    """This process's part of a tensor that every process has whole, divided as `like` is."""
    if not is_part(like):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def parts(tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The parts of tensors that have a namesake of their shape to go by; the others as they are."""
    return {
        name: part(tensor, like[name]) if name in like and like[name].shape == tensor.shape else tensor
        for name, tensor in tensors.items()
    }
