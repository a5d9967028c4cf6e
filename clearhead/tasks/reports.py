"""What is found in examples before training: counts of each split, duplicates, and labels that training lacks."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from clearhead.brief import amount, cut, shorten
from clearhead.config import Config
from clearhead.data.splits import Example
from clearhead.errors import UserError
from clearhead.text.special_tokens import special_ids
from clearhead.text.tokenizers import Tokenizer

E = TypeVar("E", bound=Example)


BLOCK = 1 << 20
"""Ids that are counted at once."""
Findings = Mapping[str, tuple[int, str]]
"""By name a count, and what is said of it."""


class SplitReport(Config):
    """The counts of a split by name, and the lines that say them."""

    counts: dict[str, Any]
    text: tuple[str, ...]

    @classmethod
    def of(cls, lines: Iterable[str], findings: Findings, **counts: Any) -> Self:
        """The report in these lines and one for each finding whose count is not 0."""
        counts |= {name: n for name, (n, _) in findings.items()}
        return cls(counts=counts, text=(*lines, *(f"  {amount(n, what)}" for n, what in findings.values() if n)))

    @classmethod
    def of_texts(
        cls, lines: Iterable[str], findings: Findings, ids: Iterable[Sequence[int]], tokenizer: Tokenizer, **counts: Any
    ) -> Self:
        """The same with the share of the tokens of these texts, without their marks, that are unknown."""
        flat, found = chain.from_iterable(ids), np.zeros(tokenizer.vocab_size, np.int64)
        while len(block := np.fromiter(islice(flat, BLOCK), np.int64)):
            found += np.bincount(block, minlength=len(found))
        n_unknown = 0 if tokenizer.unk_id is None else int(found[tokenizer.unk_id])
        n = int(found.sum() - found[sorted(special_ids(tokenizer))].sum()) + n_unknown
        line = f"  {n_unknown / max(n, 1):.2%} of {n:,} tokens are unknown"
        return cls.of((*lines, line), findings, n_unknown=n_unknown, **counts)


class SplitsReport(Config):
    """The report on all splits. `lines()` is for people, `model_dump()` for programs."""

    about: tuple[str, ...]
    """The lines about all splits."""
    splits: tuple[SplitReport, ...]

    def lines(self) -> list[str]:
        """The report as plain text, one finding a line."""
        return [*self.about, *(line for split in self.splits for line in split.text)]


def repeats(
    examples: Sequence[E],
    train: Sequence[E],
    *,
    labels: Callable[[E], Hashable],
    place: Callable[[E], str],
    another: str,
) -> Findings:
    """The duplicates. Examples that are `normalized` alike are equal.

    `train` is empty for the training data themselves; `another` says what a duplicate contradicts, such as "with
    another label".
    """
    first: dict[str, E] = {}
    duplicates = [one for one in examples if first.setdefault(one.normalized, one) is not one]
    contradicting = [one for one in duplicates if labels(one) != labels(first[one.normalized])]
    known = {one.normalized: place(one) for one in reversed(train)}
    shared = [(place(one), known[one.normalized]) for one in examples if one.normalized in known]
    such = f"of them {another}, such as {place(contradicting[0])}" if contradicting else ""
    also = (
        "({:.1%}) are also in train, such as {}, which is {}".format(len(shared) / len(examples), *shared[0])
        if shared
        else ""
    )
    return {
        "n_duplicates": (len(duplicates), "duplicates, kept"),
        "n_contradicting": (len(contradicting), such),
        "n_shared": (len(shared), also),
    }


def shares_line(counts: Mapping[str, int], most: int) -> str:
    """The share of each name, such as `good 60.0%, bad 40.0%`: the first `most` names, and the number of others."""
    n = max(sum(counts.values()), 1)
    return shorten([f"{cut(name, 40)} {count / n:.1%}" for name, count in counts.items()], most)


class Labelled(Protocol):
    """An example with labels, each in a place."""

    @property
    def placed(self) -> Iterator[tuple[str, str]]:
        """Each known label and its place, such as `reviews.csv:17`."""
        ...


def check_known(examples: Iterable[Labelled], names: Sequence[str], *, what: str = "label", remedy: str) -> None:
    """Raises UserError for the first label that is not one of `names`."""
    known = {*names}
    for example in examples:
        for name, where in example.placed:
            if name not in known:
                expected = f"a {what} of the training data ({shorten(names)})"
                raise UserError(f"{where}: expected {expected}, got {name}; {remedy}")
