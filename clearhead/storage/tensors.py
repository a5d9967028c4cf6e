"""The tensors of a network as a checkpoint holds them."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from clearhead.errors import UserError

OLDER = "try an older checkpoint; to resume the run, move this one away first"
_CHUNK = 1 << 20
"""Numbers that are examined at once, which takes a few MB."""


def model_tensors(network: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name; tied ones once, under their first name."""
    seen: set[int] = set()
    tensors: dict[str, Tensor] = {}
    # keep_vars, because only the objects themselves tell which are tied.
    for name, tensor in network.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor.detach()
    return tensors


def saved_tensors(network: nn.Module) -> dict[str, Tensor]:
    """The tensors as a file holds them: bfloat16 ones become float32, which loses nothing."""
    return {name: t.float() if t.dtype == torch.bfloat16 else t for name, t in model_tensors(network).items()}


def restore(network: nn.Module, tensors: Mapping[str, Tensor], *, where: str = "model.safetensors") -> None:
    """Copy `tensors` into `network`, exactly; `where` names their file in the errors.

    Raises UserError for a missing, an unknown or a misshapen tensor, and then changes nothing.
    """
    targets = model_tensors(network)
    check_tensors(tensors, _in_a_file(targets), where=where)
    with torch.no_grad():
        for name, target in targets.items():
            target.copy_(tensors[name])


def _in_a_file(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors without memory, with the shapes and types of `saved_tensors`."""
    small = torch.bfloat16
    return {
        name: torch.empty_like(t, dtype=torch.float32, device="meta") if t.dtype == small else t
        for name, t in tensors.items()
    }


def check_tensors(tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor], *, where: str) -> None:
    """Raises UserError, which names the first difference, unless names, shapes and dtypes are the same."""
    remedy = "try the configuration it was saved with"
    for name, like in wanted.items():
        found = f"{_kind(tensors[name])}" if name in tensors else "no such tensor"
        if found != _kind(like):
            raise UserError(f"{where}:{name}: expected {_kind(like)}, got {found}; {remedy}")
    for name in sorted(tensors.keys() - wanted.keys()):
        raise UserError(f"{where}:{name}: expected no such tensor, got {_kind(tensors[name])}; {remedy}")


def check_finite(tensors: Mapping[str, Tensor], *, where: str, remedy: str = OLDER) -> None:
    """Raises UserError, which names the first tensor with NaN or infinity, if there is one."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not _is_finite(tensor.detach()):
            raise UserError(f"{where}:{name}: expected finite numbers, got NaN or infinity; {remedy}")


def _is_finite(tensor: Tensor) -> bool:
    """Returns True if all numbers are finite.

    A sum needs no memory. If the sum of all overflows, each part is summed and, if that overflows, examined.
    """
    if tensor.sum().isfinite():
        return True
    parts = tensor.reshape(-1).split(_CHUNK)
    return all(bool(part.sum().isfinite()) or bool(part.isfinite().all()) for part in parts)


def all_finite(files: Mapping[str, Mapping[str, Tensor]], *, where: str) -> Mapping[str, Mapping[str, Tensor]]:
    """The tensors of these files. Raises UserError if a number is not finite; `where` names their folder."""
    for file, tensors in files.items():
        check_finite(tensors, where=f"{where}/{file}")
    return files


def _kind(tensor: Tensor) -> str:
    return f"{tensor.dtype}".removeprefix("torch.") + f"{list(tensor.shape)}"
