"""Tells whether a network's Python code may be skipped, and whether all that a step reads is still as it was.

A fast path computes what the code of a network would compute, without running that code. It may do so where the code
is known: parts of this package and PyTorch's own, without hooks. And it may go on only while nothing has changed.
"""

import gc
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

OWN = ("clearhead.model", "clearhead.trace")
KNOWN = {nn.Linear, nn.Embedding, nn.ModuleList, nn.LayerNorm, nn.Identity, nn.Dropout, nn.Conv1d, nn.Conv2d, nn.GELU}
"""PyTorch's parts whose code depends on nothing but their inputs and attributes."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = tuple(getattr(nn.modules.module, f"_global{name}") for name in HOOKS)
PLACES = 64
"""Numbers of a copied matrix that each step compares: writes through `.data` or NumPy leave no other sign."""
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass
class Code:
    """The Python code that ran."""

    namespaces: list[dict[str, Any]] = field(default_factory=list)
    """The namespaces of this package and of PyTorch's modules that the code belongs to."""
    obstacle: str | None = None
    """The reason why it may not be skipped: what `obstacle` names, or another package that some of it belongs to."""


def obstacle(network: nn.Module) -> str | None:
    """Why the code of a network may not be skipped, such as a hook or a part of another package; else None."""
    if any(GLOBAL_HOOKS):
        return "a hook of all modules"
    if _modes() != (0, 0):
        return "a mode that sees every operation"
    for path, module in network.named_modules():
        if not _is_known(type(module)) or getattr(module.forward, "__func__", None) is not type(module).forward:
            return f"{path or 'the network'}, a {type(module).__name__} with code of its own"
        hooks = chain.from_iterable(vars(module)[name].values() for name in HOOKS)
        if any(not _is_sharding(hook) for hook in hooks):
            return f"a hook of {path or 'the network'}"
        for name, x in chain(module._parameters.items(), module._buffers.items()):
            if x is not None and type(x) not in (Tensor, nn.Parameter, nn.Buffer):
                return f"{path}.{name}, a {type(x).__name__}"
    if _name(getattr(F.linear, "__globals__", None)):
        return "torch.nn.functional.linear, which was replaced"
    return None


def _is_known(kind: type[nn.Module]) -> bool:
    """True if this class and its `forward` are of this package or PyTorch, sharded or not."""
    kind = next(own for own in kind.__mro__ if not _is_sharding(own))
    if not (kind in KNOWN or kind.__module__.startswith(OWN)):
        return False
    return all(_name(getattr(call, "__globals__", None)).startswith((*OWN, "torch.nn.")) for call in _calls(kind))


def _is_sharding(x: object) -> bool:
    return str(getattr(x, "__module__", None)).startswith("torch.distributed.")


def _calls(kind: type[nn.Module]) -> Iterator[object]:
    yield kind.forward
    yield kind.__call__
    yield kind._call_impl


def _name(namespace: Mapping[str, Any] | None) -> str:
    return "" if namespace is None else str(namespace.get("__name__"))


@contextmanager
def watching(network: nn.Module) -> Iterator[Code]:
    """Yields what is known, after the block, about the code of a network that ran in it."""
    code, namespaces = Code(), dict[int, dict[str, Any]]()
    allowed = {"clearhead", "torch", *sys.stdlib_module_names}

    def look(frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            namespaces[id(frame.f_globals)] = frame.f_globals
        elif event == "c_call" and _package(getattr(called, "__module__", None)) not in allowed:
            code.obstacle = f"code of {called.__module__}"

    code.obstacle = obstacle(network) or ("a profiler" if sys.getprofile() else None)
    if code.obstacle is not None:
        yield code
        return
    collects = gc.isenabled()
    gc.disable()  # Else finalizers of any package might run in the block.
    sys.setprofile(look)
    try:
        yield code
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()
    for namespace in namespaces.values():
        if _package(_name(namespace)) not in allowed:
            code.obstacle = f"code of {_name(namespace)}"
        elif _name(namespace).startswith((*OWN, "torch.nn.")):
            code.namespaces.append(namespace)


def _package(module: str | None) -> str:
    return (module or "torch").partition(".")[0]


class Snapshot:
    """All that a step of a network reads beside its inputs: its parts, their code, settings, hooks and tensors."""

    def __init__(
        self, network: nn.Module, copied: Iterable[Tensor] = (), namespaces: Iterable[dict[str, Any]] = ()
    ) -> None:
        """`copied` are tensors that a fast path has copied, `namespaces` those of the code that it skips."""
        self.modules = list(network.modules())
        self.kinds = list(map(type, self.modules))
        self.hooks = [*GLOBAL_HOOKS, *(vars(m)[name] for m in self.modules for name in HOOKS)]
        kinds = {kind for own in set(self.kinds) for kind in own.__mro__ if kind is not object}
        spaces = {id(x): x for x in [vars(F), *namespaces]}
        kinds |= {x for space in spaces.values() for x in space.values() if _is_own_class(x)}
        live: dict[int, Mapping[Any, Any] | list[Any]] = {id(m.__dict__): m.__dict__ for m in self.modules}
        self.tensors: list[Tensor] = []
        for held in list(live.values()):
            self._add(held, live)
        self.live = [*live.values(), *spaces.values(), *map(vars, kinds)]
        self.was = [list(x) if isinstance(x, list) else dict(x) for x in self.live]
        self.tensors = [x for x in {id(x): x for x in self.tensors}.values() if not x.is_mkldnn]
        self.counted = [x for x in self.tensors if not x.is_inference()]
        self.places = [_places(x) for x in copied if x.device.type == "cpu"]
        self.state = self._state()

    def _add(self, held: Any, live: dict[int, Any]) -> None:
        """Adds what is in a dictionary or list of a part: tensors, and containers and objects of this package."""
        for value in held.values() if isinstance(held, Mapping) else held:
            if isinstance(value, Tensor):
                self.tensors.append(value)
                continue
            inner: Any = value if type(value) in (dict, list) else None
            if type(value).__module__.startswith("clearhead.") and not isinstance(value, type | nn.Module):
                inner = getattr(value, "__dict__", None)
            if inner and id(inner) not in live:
                live[id(inner)] = inner
                self._add(inner, live)

    def _state(self) -> tuple[object, ...]:
        return (
            *_modes(),
            torch.is_autocast_enabled("cpu"),
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
            torch._C._get_mkldnn_enabled(),
            list(map(type, self.modules)),
            list(map(Tensor.data_ptr, self.tensors)),
            list(map(Tensor.stride, self.tensors)),
            list(map(attrgetter("_version"), self.counted)),
            [place.tobytes() for place in self.places],
        )

    def holds(self) -> bool:
        """True if nothing has changed. A write through `.data` or NumPy shows only in what was copied, and in part."""
        if any(self.hooks):
            return False
        try:
            return self.live == self.was and self.state == self._state()
        except (RuntimeError, ValueError):  # Two tensors or arrays in one place cannot be compared.
            return False


def _is_own_class(x: object) -> bool:
    return isinstance(x, type) and x.__module__.startswith(OWN)


def _modes() -> tuple[int, int]:
    return torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()


def _places(x: Tensor) -> Any:
    """A view of a few numbers from all over a tensor, in NumPy."""
    flat = x.detach().view(INTEGERS[x.element_size()])
    flat = flat.view(-1) if flat.is_contiguous() else flat.T.reshape(-1)
    return flat[:: max(1, len(flat) // PLACES)].numpy()
