"""Divides a network, its gradients and other tensors among processes. The model itself knows no mesh.

ddp: a copy in each process, gradients averaged (Li et al. 2020). fsdp: each process holds a part of every tensor, and
a block is whole only while it computes (Rajbhandari et al. 2020; Zhao et al. 2023). Tensor parallel: each process
computes some of the heads and of the feed-forward units (Shoeybi et al. 2019, 3). All by PyTorch's own engine.
"""

import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor, nn

from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.assign import assemble
from clearhead.model.fast.tensor_parallel import cut, divisions_of, undivided, uneven
from clearhead.model.linear import LinearMap
from clearhead.model.transformer import Stack
from clearhead.recipe.training import Training
from clearhead.storage.tensors import model_tensors
from clearhead.tasks.task import Task
from clearhead.training.ranks import Ranks
from clearhead.training.rows import gradients


def is_sharded(config: Training, ranks: Ranks) -> bool:
    """Returns True if each process holds a part of the tensors."""
    return ranks.size > 1 and (config.parallel == "fsdp" or ranks.tensor_size > 1)


def divide(network: Transformer, config: Training, ranks: Ranks) -> None:
    """Divides the parameters among the processes, in place. With `ddp` each process keeps a copy."""
    if not is_sharded(config, ranks) or ranks.mesh is None:
        return
    from torch.distributed.fsdp import fully_shard

    # On a grid it warns for every tensor that two exchanges are needed, one for each axis.
    logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
    if ranks.tensor_size > 1:
        for stack in network.stacks().values():
            _divide_stack(stack, ranks)
    for stack in network.stacks().values():
        for block in stack.blocks:
            fully_shard(block, mesh=ranks.mesh["data"])
    fully_shard(network, mesh=ranks.mesh["data"])


def check_ranks(network: Transformer, task: Task, config: Training, ranks: Ranks, *, read: str) -> None:
    """Raises UserError unless the processes can share this training and have all `read` the same data."""
    if ranks.size == 1:
        return
    if config.weights == "bf16":
        raise UserError("training.weights: expected fp32 where several processes train, got bf16; leave it out")
    if config.unfreeze_every is not None or config.unfreeze_at:
        raise UserError("training.unfreeze_every: expected one process to unfreeze parts, got several; leave it out")
    if is_sharded(config, ranks) and any(isinstance(module, LinearMap) for module in network.modules()):
        raise UserError("training.parallel: expected ddp with an adapter, got parts of the weights; try auto")
    if is_sharded(config, ranks) and any(stack.repeats > 1 for stack in network.config.stacks.values()):
        raise UserError("training.parallel: expected ddp where blocks share their weights, got parts of them; try ddp")
    check_heads(network, ranks.tensor_size)
    largest = max(map(len, task.plan(seed=config.seed, epoch=0)))
    if largest < ranks.data_size:
        raise UserError(
            f"torchrun: expected at most {largest} processes to share a batch, the examples of the largest one, got"
            f" {ranks.data_size}; try fewer, or a higher training.max_tokens"
        )
    others = [rank for rank, theirs in enumerate(ranks.everyone(read)) if theirs != read]
    if others:
        raise UserError(f"data: expected the same in every process, got others in rank {others[0]}; copy them there")


def check_heads(network: Transformer, tensor_size: int) -> None:
    """Raises UserError unless `tensor_size` divides the numbers of heads and feed-forward units."""
    for name, stack in network.stacks().items():
        if tensor_size > 1 and (parts := undivided(stack)):
            raise UserError(
                f"training.tensor_parallel: expected 1 for model.{name}, whose {parts[0]} needs all heads at once, got"
                f" {tensor_size}; try training.parallel=fsdp alone"
            )
        for field, value in uneven(stack, stack.config, tensor_size).items():
            raise UserError(
                f"training.tensor_parallel: expected a divisor of model.{name}.{field}={value}, got {tensor_size};"
                " try a smaller one, or training.parallel=fsdp alone"
            )


def _divide_stack(stack: Stack, ranks: Ranks) -> None:
    """Divides heads and feed-forward units along the mesh's tensor axis, as each part specifies."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
    from torch.distributed.tensor.parallel.style import ParallelStyle

    assert ranks.mesh is not None
    size = ranks.tensor_size
    # The norm of heads sees only this process's heads: axis 1 of b h t k is divided.
    per_head = SequenceParallel(sequence_dim=1, use_local_output=True)
    styles = {"outputs": ColwiseParallel(), "inputs": RowwiseParallel(), "states": per_head}
    plan: dict[str, ParallelStyle] = {}
    for path, module in stack.named_modules():
        for part in divisions_of(module):
            value = getattr(module, part.name)
            if part.along is None:
                setattr(module, part.name, cut(value, ranks.rank % size, size))
            elif value is not None:
                plan[f"{path}.{part.name}"] = styles[part.along]
    parallelize_module(stack, ranks.mesh["tensor"], plan)


def replicated(network: Transformer, config: Training, ranks: Ranks) -> "Transformer | DistributedDataParallel":
    """The module that the loop calls: the network, or with `ddp` a wrapper that averages gradients."""
    if ranks.size == 1 or is_sharded(config, ranks):
        return network
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(network, gradient_as_bucket_view=True)


def gradients_stay(network: "Transformer | DistributedDataParallel") -> AbstractContextManager[object]:
    """While open, gradients add up locally: for all batches of an update except the last.

    Divided tensors have divided gradients after every batch, because whole ones would need the memory that was saved.
    """
    return nullcontext() if isinstance(network, Transformer) else network.no_sync()


def norm_of(parameters: Iterable[nn.Parameter]) -> float:
    """The norm of all gradients together, over all processes."""
    return read_with_norm([], parameters)[1]


def read_with_norm(losses: Sequence[Tensor], parameters: Iterable[nn.Parameter]) -> tuple[float, float]:
    """The sum of these numbers, and the norm of all gradients over all processes. A GPU is waited for once."""
    values = [*losses, *(whole(_norm(group)) for group in _by_place(parameters))]
    numbers = torch.stack(values).tolist() if values else []
    return sum(numbers[: len(losses)], 0.0), math.hypot(*numbers[len(losses) :])


def clipping(norm: float, limit: float) -> float:
    """The factor that scales gradients of this norm down to `limit`, as in clip_grad_norm_; 1 if none is needed."""
    return 1.0 if norm <= limit else limit / (norm + 1e-6)


def scale(parameters: Iterable[nn.Parameter], factor: float) -> None:
    """Multiplies the gradients by `factor`, in place."""
    if factor != 1.0:
        for group in _by_place(parameters):
            torch._foreach_mul_(group, factor)


def _by_place(parameters: Iterable[nn.Parameter]) -> Collection[list[Tensor]]:
    """The gradients, in groups that PyTorch can take together."""
    groups: dict[object, list[Tensor]] = {}
    for gradient in gradients(parameters):
        groups.setdefault(_place(gradient), []).append(gradient)
    return groups.values()


def _norm(gradients: list[Tensor]) -> Tensor:
    """The norm of all together, of 16-bit numbers in float32."""
    if any(g.dtype == torch.bfloat16 for g in gradients):
        return torch.stack([torch.linalg.vector_norm(g, dtype=torch.float32) for g in gradients]).norm()
    return nn.utils.get_total_norm(gradients)


def _place(tensor: Tensor) -> object:
    """Mesh and placements of a divided tensor, None for a whole one. PyTorch takes tensors of one place together."""
    return (tensor.device_mesh, tensor.placements) if is_part(tensor) else None


def gathered(network: Transformer, ranks: Ranks) -> Transformer | None:
    """The whole network in the first process, None in the others. Every process must call this."""
    kept: dict[str, Tensor] = {}
    for name, tensor in model_tensors(network).items():
        full = whole(tensor)
        if ranks.is_first:
            kept[name] = full
    return assemble(network.config, kept, where="model") if ranks.is_first else None


if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor
    from torch.nn.parallel import DistributedDataParallel


def is_part(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Returns True if this process holds only a part of the tensor."""
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
