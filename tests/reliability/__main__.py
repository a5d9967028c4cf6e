"""`python -m tests.reliability [ROW ...] [--into docs/reliability.md]`: shows what we promise, and counts."""

import argparse
import datetime as dt
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.racing.machine import Machine
from tests import processes
from tests.reliability import IN_MATRIX, Counted, Row, rows

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- counts: begin -->", "<!-- counts: end -->"
LIMIT = 3600.0
"""Seconds for the tests of one row: only a guard against a test that hangs."""


@dataclass(frozen=True)
class Result:
    """What was seen of one row."""

    row: Row
    is_kept: bool
    said: str
    seconds: float

    def __str__(self) -> str:
        kept = "yes" if self.is_kept else "**no**"
        when = f"{dt.date.today()}, {self.seconds:.0f} s"
        return f"| {self.row.number} | {self.row.promise} | {kept} | {self.said} | {when} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description=__doc__)
    parser.add_argument("rows", type=int, nargs="*", metavar="ROW", help="numbers of rows (default: all)")
    parser.add_argument("--into", type=Path, help="a page in whose table to write these rows")
    asked = parser.parse_args()
    found: list[Result] = []
    for row in rows():
        if not asked.rows or row.number in asked.rows:
            found.append(told(row))
            if asked.into:
                put_into(asked.into, found)
    kept = sum(result.is_kept for result in found)
    print(f"kept: {kept} of {len(found)}")
    sys.exit(kept < len(found))


def told(row: Row) -> Result:
    """Shows a row, and prints a line about it."""
    began, parts, broken = time.monotonic(), [], 0
    if row.program:
        with tempfile.TemporaryDirectory(prefix=f"row-{row.number}-") as folder:
            counted = row.function()(Path(folder))
        parts, broken = [counted.said], counted.broken
        if broken:
            parts.append(f"{broken} of {counted.tried} broken")
    if row.tests:
        tested = by_tests(row)
        parts.append(tested.said)
        broken += tested.broken
    result = Result(row, not broken, "; ".join(parts), time.monotonic() - began)
    print(f"{row.number:3} {'kept  ' if result.is_kept else 'BROKEN'} {row.promise}: {result.said}", end=" ")
    print(f"[{result.seconds:.0f} s]", flush=True)
    return result


def by_tests(row: Row) -> Counted:
    """The row's tests, slow ones too."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE", "--tb=line"]
    command += ["-o", f"faulthandler_timeout={LIMIT:.0f}"]  # Else a busy machine ends the longest.
    command += [] if row.fast else ["-m", ""]
    command += ["--hypothesis-profile=thorough"] if row.thorough else []
    done = processes.run(
        [*command, *(f"tests/{name}" for name in row.tests)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    counts = {what: int(n) for n, what in re.findall(r"(\d+) (passed|failed|errors?|skipped)", done.stdout)}
    if done.returncode not in (0, 1) or not counts.get("passed"):
        raise RuntimeError(f"row {row.number}: pytest ended with {done.returncode}\n{done.stdout}{done.stderr}")
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    broken = sum(n for what, n in counts.items() if what.startswith(("failed", "error")))
    skipped = f", {counts['skipped']} skipped" if "skipped" in counts else ""
    drawn = ", each with 500 random examples" if row.thorough else ""
    passed = f"{counts['passed']} test{'s' * (counts['passed'] != 1)} passed"
    return Counted(counts["passed"] + broken, broken, f"{passed}{skipped}{drawn}")


def put_into(page: Path, found: list[Result]) -> None:
    """Writes rows into the table between the marks of a page; the others stay."""
    text = page.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    told_before = re.findall(r"^\| (\d+) \|.*$", text, re.MULTILINE)
    lines = dict(zip(told_before, re.findall(r"^\| \d+ \|.*$", text, re.MULTILINE), strict=True))
    lines |= {str(result.row.number): str(result) for result in found}
    kept = [int(number) for number, line in lines.items() if " | yes | " in line]
    inside, more = sum(number <= IN_MATRIX for number in kept), len(rows()) - IN_MATRIX
    missing = len(rows()) - len(lines)
    matrix = f"Of the guarantees 1 to {IN_MATRIX}, {inside} held at their newest check."
    beyond = f"Of the {more} further guarantees, {len(kept) - inside} held" + f"; {missing} were not checked yet" * (
        missing > 0
    )
    table = [f"{matrix} {beyond}. The last check ran on {Machine.now(None)}"]
    for area in dict.fromkeys(row.area for row in rows()):
        table += ["", f"### {area}", "", "| row | promise | kept | what was counted | when |", "|---|---|---|---|---|"]
        table += [lines[number] for row in rows() if row.area == area and (number := str(row.number)) in lines]
    page.write_text("\n".join([before + BEGIN, *table, END + after]), encoding="utf-8")


if __name__ == "__main__":
    main()
