"""`python -m tests.parity` writes docs/parity.md: every case compared with the reference library, a line a family."""

import argparse
import multiprocessing
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import torch
import transformers

from tests.parity.cases import CASES, DERIVED
from tests.parity.comparing import Line, tried

PAGE = Path(__file__).resolve().parents[2] / "docs" / "parity.md"
HEADER = """# Parity with the reference library

The command `python -m tests.parity` writes this page; do not edit it. Each line of the table is one class of
transformers. For each class, the test builds tiny models, one for each config in `tests/parity/cases`. All weights
are random, also those of biases and norms. Both libraries compute in float32 on batches of unequal lengths, which are
padded left and right. transformers computes with eager and with SDPA attention. clearhead computes with explicit
attention, during a trace, with fused attention, and on packed batches. The test ignores the values at padded
positions. Values may differ by at most 1e-5 of the largest value of transformers (or by 1e-5 if this largest value is
below 1), and never by more than 1e-4. The column *share of bound* divides the largest difference by this bound.

In a round trip, clearhead opens a folder of transformers and saves it. Then both libraries open the saved folder. No
tensor may be missing, unexpected or of another shape, and all values must be equal to the bit.

For classes that generate text, both libraries generate 64 tokens in float64, in batches with padding. They do this
greedily and with 4 beams (length penalties 0.6 and 2.0), and the texts must be equal.
"""


def rows(found: dict[tuple[str, str], Line]) -> Iterator[str]:
    """The table."""
    titles = ["class", "variants", "tensors", "max diff logits", "max diff hidden", "share of bound"]
    yield f"| {' | '.join([*titles, 'texts'])} |"
    of_class = Counter(architecture for _, architecture in found)
    yield "|---|--:|--:|--:|--:|--:|---|"
    for (family, architecture), line in found.items():
        numbers = f"{line.gap.logits:.1e} | {line.gap.hidden:.1e} | {line.gap.relative / 1e-5:.0%}"
        title = architecture if of_class[architecture] == 1 else f"{architecture} ({family})"
        yield f"| {title} | {line.variants} | {line.tensors} | {numbers} | {line.texts} |"


def main() -> int:
    """Compare, print, write; 1 if a case failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this; prints and writes nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that compare")
    given = parser.parse_args()
    only: str = given.only
    found, wrong = dict[tuple[str, str], Line](), list[str]()
    cases = [case for case in (*CASES, *DERIVED) if only in str(case)]
    with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
        for case, line in zip(cases, pool.map(tried, cases, chunksize=4), strict=True):
            print(line if isinstance(line, str) else case, file=sys.stderr, flush=True)
            if isinstance(line, str):
                wrong.append(line)
            else:
                found[case.family, case.architecture] = found.get((case.family, case.architecture), Line())
                found[case.family, case.architecture] |= line
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    n = sum(line.variants for line in found.values())
    summary = (
        f"The test compared {n} configurations of {len(found)} classes. Every round trip was equal to the bit"
        f" ({versions}, {platform.machine()}, {datetime.now(UTC):%Y-%m-%d})."
    )
    text = "\n".join([HEADER, summary, "", *rows(found)]) + "\n"
    print(text)
    print("\n".join(wrong), file=sys.stderr)
    if not only and not wrong:
        PAGE.write_text(text, encoding="utf-8")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
