"""`python -m tests.mutations` puts defects into a copy of the tree and says which of them the tests find.

`[--only N ...] [--whole] [--processor avx2]`: each defect alone, and of the tests those named for it; with --whole, the
whole suite where these find nothing. A test that fails without the defect, too, has found nothing. With --processor,
the tests run as on a processor of this kind.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests import processes
from tests.mutations import Defect, defects
from tests.test_processors import ENVIRONMENTS

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = (".git", ".venv", "node_modules", "__pycache__", ".pytest_cache", "shared")
LISTS = ("--deselect", "tests/test_mutations.py")
"""That test would find every defect."""
LIMIT = 3600.0
"""Seconds for one run of tests: only a guard against a test that hangs."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="numbers of defects, from 1 on")
    parser.add_argument("--whole", action="store_true", help="the whole suite where the named tests find nothing")
    parser.add_argument("--processor", choices=[*ENVIRONMENTS], help="the kind that this processor imitates")
    asked = parser.parse_args()
    os.environ.update(ENVIRONMENTS.get(asked.processor, {}))
    numbered = [(i, one) for i, one in enumerate(defects(), 1) if not asked.only or i in asked.only]
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        root = copied(Path(folder) / "tree")
        found = [told(i, one, root, whole=asked.whole) for i, one in numbered]
    print(f"caught: {sum(found)} of {len(found)}")
    sys.exit(not all(found))


def copied(root: Path) -> Path:
    """A copy of the tree, with the built page; what npm installed is linked to."""
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*LEFT_OUT))
    if (ROOT / "ui" / "node_modules").is_dir():
        (root / "ui" / "node_modules").symlink_to(ROOT / "ui" / "node_modules")
    return root


def told(number: int, defect: Defect, root: Path, *, whole: bool) -> bool:
    """Whether a test finds the defect; prints a line about it."""
    began = time.monotonic()
    caught = caught_by(defect, root, defect.test_paths)
    if caught is None and whole:
        caught = caught_by(defect, root, [])
    print(
        f"{number:3} {'caught' if caught else 'MISSED'}  {defect.file}: {defect.name}"
        f"  [{caught or ', '.join(defect.tests)}, {time.monotonic() - began:.0f} s]",
        flush=True,
    )
    return caught is not None


def caught_by(defect: Defect, root: Path, tests: Sequence[str]) -> str | None:
    """The first of these tests, of all if none is named, that fails with the defect and passes without it."""
    path = defect.path(root)
    source = path.read_text(encoding="utf-8")
    write(path, defect.applied(source))
    try:
        failed = first_failure(root, tests)
    finally:
        write(path, source)
    return failed if failed and first_failure(root, [failed]) is None else None


def write(path: Path, source: str) -> None:
    """The file, without what was compiled of it: a file of the same size and second counts as the same."""
    path.write_text(source, encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def first_failure(root: Path, tests: Sequence[str]) -> str | None:
    """The first test that fails; None if all pass."""
    shared = os.environ.get("CLEARHEAD_SHARED_DATA") or str(ROOT.parent / "shared" / "data")
    done = processes.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-rfE", "--tb=no", *LISTS, *tests],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'lab'}", "CLEARHEAD_SHARED_DATA": shared},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    if done.returncode == 0:
        return None
    named = re.search(r"^(?:FAILED|ERROR) ((?:lab/)?tests/\S+?(?:\[.*?\])?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if named is None:
        raise RuntimeError(f"pytest ended with {done.returncode} and names no test\n{done.stdout}{done.stderr}")
    return named[1]


if __name__ == "__main__":
    main()
