"""`Reply`, a JSON part and tensors in one safetensors file, and `LRUCache`, a bounded cache."""

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from safetensors.torch import save
from torch import Tensor

from clearhead.brief import brief
from clearhead.errors import UserError, sizes

MOST_BYTES = 64 << 20
"""The limit for the tensors of one reply."""


@dataclass(frozen=True)
class Reply:
    """The answer to a question."""

    __repr__ = brief

    json: Mapping[str, Any]
    tensors: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])

    def encode(self, *, limited: bool = True) -> bytes:
        """One safetensors file, the JSON part in its metadata.

        Raises UserError for more than MOST_BYTES of tensors, if it is `limited`, and if edits made a figure NaN or
        infinite.
        """
        if limited:
            check_size(sum(tensor.nbytes for tensor in self.tensors.values()))
        try:
            text = json.dumps(self.json, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except ValueError:
            raise UserError("reply: expected finite figures, got NaN or infinity; try another edit") from None
        return save({name: _apart(tensor) for name, tensor in self.tensors.items()}, {"reply": text})


def _apart(tensor: Tensor) -> Tensor:
    """A contiguous copy on the CPU, as safetensors needs it."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def check_size(n_bytes: int) -> None:
    """Raises UserError if a reply is too large to send."""
    if n_bytes > MOST_BYTES:
        most, got = sizes(MOST_BYTES, n_bytes)
        raise UserError(f"reply: expected at most {most} of numbers, got {got}; ask for fewer at a time, or for rows")


T = TypeVar("T")


class LRUCache(Generic[T]):
    """A cache of the values used last, bounded in number and bytes."""

    def __init__(self, count: int, *, n_bytes: int | None = None, size: Callable[[T], int] = lambda _: 0) -> None:
        """Keeps at most `count` values of at most `n_bytes` in all, as `size` measures them, and always the newest."""
        self._kept: OrderedDict[str, T] = OrderedDict()
        self._count, self._n_bytes, self._size = count, n_bytes, size

    def get(self, key: str, make: Callable[[], T]) -> T:
        """The value of a key; `make` makes it if it is not kept."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        made = self._kept[key] = make()
        self._kept.move_to_end(key)  # `make` may have kept others.
        while len(self._kept) > 1 and (len(self._kept) > self._count or self._too_large()):
            self._kept.popitem(last=False)
        return made

    def _too_large(self) -> bool:
        return self._n_bytes is not None and sum(map(self._size, self._kept.values())) > self._n_bytes
