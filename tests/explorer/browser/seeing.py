"""A page on a model's input, beside what Python computes of the same."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from clearhead.trace import Trace
from tests.explorer.browser.numbers import mismatches
from tests.explorer.browser.page import Opened, Served, Table
from tests.explorer.browser.trained import picture

SOURCE, TARGET = "seven two nine one", "eins neun zwei sieben"
INPUTS: dict[str, tuple[str, str | None]] = {
    "translator": (SOURCE, TARGET),
    "writer": ("six seven eight nine ten one", None),
    "filler": ("two three zorblax five six", None),
    "seer": ("", None),
}
IMAGE = picture(2, np.random.default_rng(3))


@dataclass(frozen=True)
class Seen:
    """A page and what Python computes of the same input."""

    opened: Opened
    served: Served
    trace: Trace
    logits: Tensor

    def value(self, address: str) -> Any:
        """As lists of numbers, without the batch."""
        return self.trace[address][0].tolist()


def shows(seen: Seen, values: dict[str, Any]) -> None:
    are(seen.opened.figures(), values)


def are(tables: dict[str, Table], values: dict[str, Any]) -> None:
    """Figures show all of these numbers, and rightly."""
    for label, numbers in values.items():
        assert label in tables
        assert len(tables[label].cells) == len(numbers) * len(numbers[0]), label
        assert mismatches(tables[label].cells, numbers) == [], label
