"""Temporary evaluation mode."""

from types import TracebackType

from torch import nn


class Evaluating:
    """A `with` block in which the network is in evaluation mode: without dropout.

    Afterwards each module has its own mode again, also after an exception. Blocks may be nested, and one object may
    be entered many times.
    """

    def __init__(self, network: nn.Module) -> None:
        self._modules = list(network.modules())
        self._training: list[list[nn.Module]] = []

    def __enter__(self) -> None:
        training = [module for module in self._modules if module.training]
        for module in training:
            module.training = False
        self._training.append(training)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for module in self._training.pop():
            module.training = True
