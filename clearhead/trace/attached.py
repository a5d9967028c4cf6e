"""Numbers that are read from a value, and write to one: what a trace records and edits beside the network's own."""

from typing import Protocol

from torch import Tensor, nn


class Attached(Protocol):
    """Numbers read from one value that write to one, such as the features of a sparse autoencoder."""

    @property
    def reads(self) -> str:
        """The address of the value that they are read from. Theirs is `reads.name`, with the last axis f."""
        ...

    @property
    def writes(self) -> str:
        """The address of the value that they write to: the same, or a later one."""
        ...

    @property
    def name(self) -> str:
        """The last part of their address."""
        ...

    def encode(self, value: Tensor) -> Tensor:
        """... d -> ... f: the numbers."""
        ...

    def written(self, change: Tensor) -> Tensor:
        """... f -> ... d: what a change of the numbers adds where they write."""
        ...


class HasAttached(nn.Module):
    """A network that numbers can be attached to."""

    def __init__(self) -> None:
        super().__init__()
        self.attached: list[Attached] = []
        """Numbers with addresses of their own in every trace, such as the features of a sparse autoencoder."""
