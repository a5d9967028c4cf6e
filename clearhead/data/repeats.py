"""Examples that a split has twice, or that are also in training. Imports no torch."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from clearhead.config import Config
from clearhead.data.labelled import Example

E = TypeVar("E", bound=Example)


class Repeats(Config):
    """The counts of a split. Examples that are `normalized` alike are equal."""

    n_duplicates: int
    """Examples that an earlier one equals."""
    n_contradicting: int
    """Duplicates with other labels than the earlier one."""
    contradiction: str
    """The place of the first of them."""
    n_shared: int
    """Examples that are also in training."""
    shared: str
    """The place of the first of them, and its place in training."""

    def repeated(self, n: int, *, another: str) -> list[str]:
        """The findings in `n` examples as text; `another` says what a duplicate contradicts, such as another label."""
        found = (
            (self.n_duplicates, "duplicates, kept"),
            (self.n_contradicting, f"of them {another}, such as {self.contradiction}"),
            (self.n_shared, f"({self.n_shared / max(n, 1):.1%}) are also in train, such as {self.shared}"),
        )
        return [f"  {count:,} {what}" for count, what in found if count]


def repeats(
    examples: Sequence[E], train: Sequence[E], *, labels: Callable[[E], Hashable], place: Callable[[E], str]
) -> dict[str, Any]:
    """The fields of `Repeats` for a split. `train` is empty for the training data themselves."""
    first: dict[str, E] = {}
    duplicates = [one for one in examples if first.setdefault(one.normalized, one) is not one]
    contradicting = [one for one in duplicates if labels(one) != labels(first[one.normalized])]
    known = {one.normalized: place(one) for one in reversed(train)}
    shared = [one for one in examples if one.normalized in known]
    return {
        "n_duplicates": len(duplicates),
        "n_contradicting": len(contradicting),
        "contradiction": place(contradicting[0]) if contradicting else "",
        "n_shared": len(shared),
        "shared": f"{place(shared[0])}, which is {known[shared[0].normalized]}" if shared else "",
    }
