"""`python -m tests.parity` writes docs/parity.md: every case compared with the reference library, a line a family."""

import argparse
import platform
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import torch
import transformers

from clearhead.model import shapes
from tests.parity.cases import CASES, DERIVED
from tests.parity.generation import compare_texts, writes
from tests.parity.harness import Case, Gap, both, gaps, round_trip

PAGE = Path(__file__).resolve().parents[2] / "docs" / "parity.md"
HEADER = """# Parity with the reference library

Written by `python -m tests.parity`; do not edit. Every line is one architecture on tiny random models (every bias and
norm drawn too): all its variants of the config, batches of unequal lengths padded left and right, the reference in
eager and SDPA attention, ours explicit, traced, fused and packed, all in float32 on real positions. The bound is
1e-5 of max(1, largest value of the reference), and never above 1e-4. A round trip is ours opened from the reference's
folder, saved, opened by the reference (no missing, unexpected or misshapen tensor) and by us again, all equal to the
bit. Texts are 64 tokens in float64, in batches with padding, greedy and with 4 beams (length penalty 0.6 and 2.0).
"""


@dataclass
class Line:
    """What was found of one class."""

    variants: int = 0
    tensors: int = 0
    gap: Gap = field(default_factory=lambda: Gap(0.0, 0.0, 0.0))
    texts: str = ""


def compare(case: Case, line: Line) -> None:
    """Add one case; AssertionError where a round trip is not exact or a text is another."""
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = both(case, Path(folder) / "theirs")
        for _, gap in gaps(case, theirs, ours):
            line.gap |= gap
        round_trip(theirs, ours, Path(folder) / "ours")
        if not line.tensors:
            weights = shapes.weights_of(ours.network).values()
            line.tensors = sum(weight.tied_to is None for weight in weights)
        if writes(case):
            compare_texts(case, Path(folder) / "texts")
            line.texts = "equal"
    line.variants += 1


def rows(found: dict[tuple[str, str], Line]) -> Iterator[str]:
    """The table."""
    titles = ["family", "class", "variants", "tensors", "max diff logits", "max diff hidden", "share of bound"]
    yield f"| {' | '.join([*titles, 'round trip', 'texts'])} |"
    yield "|---|---|--:|--:|--:|--:|--:|---|---|"
    for (family, architecture), line in found.items():
        numbers = f"{line.gap.logits:.1e} | {line.gap.hidden:.1e} | {line.gap.relative / 1e-5:.0%}"
        yield f"| {family} | {architecture} | {line.variants} | {line.tensors} | {numbers} | equal | {line.texts} |"


def main() -> None:
    """Compare, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this; prints and writes nothing")
    only = parser.parse_args().only
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    found: dict[tuple[str, str], Line] = {}
    for case in (case for case in (*CASES, *DERIVED) if only in str(case)):
        print(case, file=sys.stderr)
        compare(case, found.setdefault((case.family, case.architecture), Line()))
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    n = sum(line.variants for line in found.values())
    summary = (
        f"{n} configurations of {len(found)} classes, every round trip equal to the bit; {versions},"
        f" {platform.machine()}, {datetime.now(UTC):%Y-%m-%d}."
    )
    text = "\n".join([HEADER, summary, "", *rows(found)]) + "\n"
    print(text)
    if not only:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
