"""Tensors of which each process holds a part. With one process all tensors are whole, and nothing is imported."""

from collections.abc import Mapping

from torch import Tensor, nn


def is_part(tensor: Tensor) -> bool:
    """Whether this process holds only a part of the tensor."""
    if type(tensor) in (Tensor, nn.Parameter):
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def whole(tensor: Tensor) -> Tensor:
    """The whole tensor. Every process must call this at the same time."""
    if not is_part(tensor):
        return tensor
    from torch.distributed.tensor import DTensor

    assert isinstance(tensor, DTensor)
    return tensor.full_tensor()


def part(tensor: Tensor, like: Tensor) -> Tensor:
    """This process's part, divided as `like` is, of a tensor that every process holds whole."""
    if not is_part(like):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def parts(tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each tensor, divided as the one in `like` of the same name and shape is; the others unchanged."""
    return {
        name: part(tensor, like[name]) if name in like and like[name].shape == tensor.shape else tensor
        for name, tensor in tensors.items()
    }
