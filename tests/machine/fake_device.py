"""A device that is not the CPU: the numbers of a CPU, the rules of a GPU.

Its tensors meet no tensor of another device, except numbers and copies. `syncs` lists each place at which Python waited
for one of its numbers. Install it in a process of its own.
"""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "fake"
HERE = torch.device("cpu")
aten: Any = torch.ops.aten
COPIES = {aten.copy_.default, aten._to_copy.default}
WAITS = {
    aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default,
    aten.nonzero.default, aten.masked_select.default, aten._unique2.default,
}  # fmt: skip
"""The host waits for these: for a number, or to know how large the result is."""
syncs: list[str] = []
_LIBRARIES: list[torch.library.Library] = []


class FakeTensor(torch.Tensor):
    """A tensor on the device; `held` has its numbers."""

    __torch_function__: Any = torch._C._disabled_torch_function_impl
    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "FakeTensor":
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        made = torch.Tensor._make_wrapper_subclass(cls, held.shape, device=torch.device(NAME, 0), **layout)
        made.held = held
        return made

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # pyrefly: ignore[bad-override]
        return run(func, *args, **(kwargs or {}))


def run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """The op on the CPU, if all its tensors are on the device."""
    values, spec = pytree.tree_flatten((args, kwargs))
    for value in values:
        if isinstance(value, Tensor) and not isinstance(value, FakeTensor) and value.dim() and op not in COPIES:
            raise RuntimeError(
                f"{op}: expected all tensors on {NAME}, got one of shape {[*value.shape]} on {value.device}"
            )
    back = {id(value.held): value for value in values if isinstance(value, FakeTensor)}
    to_host = any(value == HERE for value in values if isinstance(value, torch.device)) or (
        op is aten.copy_.default and not isinstance(args[0], FakeTensor)
    )
    if to_host or op in WAITS or _picks(op, args):
        syncs.append(_caller(op))
    inner, named = pytree.tree_unflatten([_here(value) for value in values], spec)
    result = op(*inner, **named)
    if to_host:
        return args[0] if op is aten.copy_.default else result
    return pytree.tree_map_only(Tensor, lambda one: back[id(one)] if id(one) in back else FakeTensor(one), result)


def _picks(op: Any, args: Any) -> bool:
    """Whether it takes what a mask marks, whose number the host has to know."""
    if op not in (aten.index.Tensor, aten.index_put_.default, aten.index_put.default):
        return False
    return any(index is not None and index.dtype == torch.bool for index in args[1])


def _here(value: Any) -> Any:
    if isinstance(value, FakeTensor):
        return value.held
    return HERE if isinstance(value, torch.device) else value


def _caller(op: Any) -> str:
    """The line of ours that asked."""
    ours = [frame for frame in traceback.extract_stack(sys._getframe(2)) if "/clearhead/" in frame.filename]
    at = f"{ours[-1].filename.rpartition('/clearhead/')[2]}:{ours[-1].lineno} {ours[-1].line}" if ours else "elsewhere"
    return f"{at} ({op})"


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    _here(target).copy_(_here(source))
    return target


@contextmanager
def counting() -> Iterator[list[str]]:
    """The syncs inside."""
    begun: list[str] = []
    at = len(syncs)
    yield begun
    begun += syncs[at:]


class _NoGrad(torch.no_grad):
    """Wrapped tensors have no inference mode."""

    def __new__(cls, mode: bool = True) -> Any:
        return super().__new__(cls) if mode else nullcontext()

    def __init__(self, mode: bool = True) -> None:
        super().__init__()


class _Module(_DummyBackendModule):
    """What `torch.fake` answers."""

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        return [torch.bfloat16]


def install() -> None:
    """Makes it the accelerator of this process."""
    vars(torch)["inference_mode"] = _NoGrad
    # A weight that two modules share stays one.
    torch.__future__.set_swap_module_params_on_conversion(True)
    _setup_privateuseone_for_python_backend(NAME, _Module())
    for namespace, implement in (("_", lambda all_ops: all_ops.fallback(run, "PrivateUse1")),
                                 ("aten", lambda ops: ops.impl("_copy_from", _copy_from, "PrivateUse1"))):  # fmt: skip
        _LIBRARIES.append(torch.library.Library(namespace, "IMPL"))
        implement(_LIBRARIES[-1])
