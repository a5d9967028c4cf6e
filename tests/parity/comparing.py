"""One case compared with the reference library, in a process of its own or not."""

import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers

from clearhead.model import meta
from tests.parity.generation import compare_texts, writes
from tests.parity.harness import Case, Gap, both, gaps, round_trip


@dataclass
class Line:
    """What was found of one class."""

    variants: int = 0
    tensors: int = 0
    gap: Gap = field(default_factory=lambda: Gap(0.0, 0.0, 0.0))
    texts: str = ""

    def __ior__(self, other: "Line") -> "Line":
        self.variants += other.variants
        self.tensors = self.tensors or other.tensors
        self.gap |= other.gap
        self.texts = self.texts or other.texts
        return self


def compare(case: Case) -> Line:
    """The line of one case. Raises AssertionError where a round trip is not exact or a text is another."""
    line = Line()
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = both(case, Path(folder) / "theirs")
        for _, gap in gaps(case, theirs, ours):
            line.gap |= gap
        round_trip(theirs, ours, Path(folder) / "ours")
        if not line.tensors:
            weights = meta.weights_of(ours.network).values()
            line.tensors = sum(weight.tied_to is None for weight in weights)
        if writes(case):
            compare_texts(case, Path(folder) / "texts")
            line.texts = "equal"
    line.variants = 1
    return line


def tried(case: Case) -> Line | str:
    """The line of one case, or what went wrong."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        return compare(case)
    except Exception as error:  # every other case is still compared
        return f"{case}: {type(error).__name__}: {str(error)[:300]}"
