"""Temporary evaluation mode, of the thread that computes alone."""

from collections.abc import Iterator
from contextvars import ContextVar
from threading import Lock
from types import TracebackType

import torch
from torch import nn

_depth: ContextVar[int] = ContextVar("evaluating", default=0)
"""Blocks of evaluation mode that this thread is in."""
_held: dict[nn.Module, int] = {}
"""Other packages' modules that some thread has switched, and the number of blocks that they are in."""
_lock = Lock()


class Part(nn.Module):
    """A part of a network. In a block of `Evaluating`, its mode is evaluation for the thread of the block alone."""

    @property
    def training(self) -> bool:
        """The module's own mode, or False while this thread is evaluating. Compiled code knows the own mode alone."""
        return self.__dict__["training"] and (torch.compiler.is_compiling() or not _depth.get())

    @training.setter
    def training(self, mode: bool) -> None:
        self.__dict__["training"] = mode

    @property
    def device(self) -> torch.device:
        """The device of its weights."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The type of its weights, the first one if they have several."""
        return next(self.parameters()).dtype

    @property
    def dtype_name(self) -> str:
        """Such as `float32`."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def n_parameters(self) -> int:
        """The numbers in its parameters, tied ones once."""
        return sum(map(torch.numel, self.parameters()))


class Evaluating:
    """A `with` block in which this thread computes in evaluation mode: without dropout.

    The parts of a network keep their modes, which other threads see and may set. Modules of other packages and of
    compiled networks have one mode for all threads: it is restored when the last thread leaves its block. Blocks may be
    nested, and one object may be entered many times.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._entered: list[list[nn.Module]] = []

    def __enter__(self) -> None:
        _depth.set(_depth.get() + 1)
        every = _is_compiled(self._network)
        others = [module for module in _modules(self._network) if every or not isinstance(module, Part)]
        with _lock:
            switched = [module for module in others if module.__dict__["training"] or module in _held]
            for module in switched:
                _held[module] = _held.get(module, 0) + 1
                module.training = False
        self._entered.append(switched)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _depth.set(_depth.get() - 1)
        with _lock:
            for module in self._entered.pop():
                _held[module] -= 1
                if not _held[module]:
                    del _held[module]
                    module.training = True


def _is_compiled(network: nn.Module) -> bool:
    """True if PyTorch's compiler reads the modes of the parts."""
    return network._compiled_call_impl is not None


def _modules(network: nn.Module) -> Iterator[nn.Module]:
    """Every module once. It is quicker than `network.modules()`, and a step of decoding asks each time."""
    found = dict.fromkeys([network])
    waiting = [network]
    while waiting:
        for module in waiting.pop()._modules.values():
            if module is not None and module not in found:
                found[module] = None
                waiting.append(module)
    return iter(found)
