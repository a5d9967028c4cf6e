"""Defects of one line, and which of them the suite finds."""

import re
import sys
from pathlib import Path

from tests import processes
from tests.mutations import defects
from tests.reliability import Counted

ROOT = Path(__file__).resolve().parents[2]
WANTED = 0.97


def defects_caught(folder: Path) -> Counted:
    """All seeded defects, each with the tests of its area, as on a processor with AVX2 alone."""
    del folder
    n = len(defects())
    command = [sys.executable, "-m", "tests.mutations", "--processor", "avx2"]
    done = processes.run(command, cwd=ROOT, capture_output=True, text=True, timeout=4 * 3600.0)
    found = re.search(r"^caught: (\d+) of \d+$", done.stdout, re.MULTILINE)
    if found is None:
        raise RuntimeError(done.stdout + done.stderr)
    missed = n - int(found[1])
    return Counted(n, int(missed > n * (1 - WANTED)), f"{n - missed} of {n} defects were caught")
