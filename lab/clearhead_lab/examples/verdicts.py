"""The verdict of each record, from what is printed and what the engine computes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from clearhead_lab.examples import norms, places, products, shapes, statements, vocabularies, words
from clearhead_lab.examples.parts import Compute, Statement
from clearhead_lab.examples.records import Record, Verdict, numbers

COMPUTED: dict[str, Compute] = (
    shapes.COMPUTED
    | products.COMPUTED
    | places.COMPUTED
    | norms.COMPUTED
    | vocabularies.COMPUTED
    | words.COMPUTED
    | statements.COMPUTED
)


@dataclass(frozen=True)
class Judged:
    """A record with our values and the verdict that follows from them."""

    record: Record
    ours: list[float] | str
    verdict: Verdict


def judge(record: Record) -> Judged:
    """Computes a record and compares it with what is printed. Draws the same random numbers every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        found = COMPUTED[record.id](record.inputs)
    ours: list[float] | str = found.found if isinstance(found, Statement) else list(numbers(found))
    return Judged(record, ours, _verdict(record, found, ours))


def judged(records: Sequence[Record]) -> Iterator[Judged]:
    """The records one by one, in order."""
    yield from map(judge, records)


def _verdict(record: Record, found: Any, ours: list[float] | str) -> Verdict:
    if record.lost:
        return "cannot be checked"
    if record.printed is None:
        return "nothing printed"
    if isinstance(found, Statement):
        return "reproduces" if found.holds else "wrong"
    assert not isinstance(ours, str)
    return compare(list(numbers(record.printed)), ours, decimals=record.decimals, slack=record.slack)


def compare(printed: Sequence[float], ours: Sequence[float], *, decimals: int | None, slack: float = 1.0) -> Verdict:
    """`reproduces` within half a unit of the last decimal, `rounding` within `slack` units, else `wrong`.

    Without decimals the numbers must be equal, up to floating point: a count of a million that is one off is wrong.
    """
    if len(printed) != len(ours):
        return "wrong"
    apart = max(abs(a - b) for a, b in zip(printed, ours, strict=True))
    if decimals is None:
        return "reproduces" if apart <= 1e-6 else "wrong"
    units = apart * 10**decimals / (1 + 1e-3)  # float32, and halves that are rounded up
    return "reproduces" if units <= 0.5 else "rounding" if units <= slack else "wrong"


def tally(results: Sequence[Judged]) -> str:
    """`260 records: 123 reproduced, 8 off by rounding, ...`"""
    n = Counter(result.verdict for result in results)
    told: dict[Verdict, str] = {
        "reproduces": "reproduced",
        "rounding": "off by rounding",
        "wrong": "wrong",
        "nothing printed": "without a printed answer",
        "cannot be checked": "that cannot be checked",
    }
    return f"{len(results)} records: " + ", ".join(
        f"{n[verdict]} {what}" for verdict, what in told.items() if n[verdict]
    )
