"""`LRUCache`: a bounded cache."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class LRUCache(Generic[T]):
    """A cache of the values used last, bounded in number and bytes."""

    def __init__(self, count: int, *, n_bytes: int | None = None, size: Callable[[T], int] = lambda _: 0) -> None:
        """Keeps at most `count` values of at most `n_bytes` in all, as `size` measures them, and always the newest."""
        self._kept: OrderedDict[str, T] = OrderedDict()
        self._count, self._n_bytes, self._size = count, n_bytes, size

    def __contains__(self, key: str) -> bool:
        return key in self._kept

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

    def newest_first(self) -> Iterator[T]:
        """The kept values, those used last first."""
        return reversed(self._kept.values())

    def _too_large(self) -> bool:
        return self._n_bytes is not None and sum(map(self._size, self._kept.values())) > self._n_bytes
