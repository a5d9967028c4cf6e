"""`python -m tests.goldens write FILE`, then, after a refactoring, `python -m tests.goldens compare FILE`.

The goldens are what no refactoring may change, for every preset, parity variant and pair of mechanisms: the
op record, the costs, the memory plan and how weights divide among processes; and the losses of 20 steps, in hex. Losses
are those of one machine, so the file is written and compared on the same one and is not kept.
"""

import json
import sys
from pathlib import Path

from tests.goldens.frozen import frozen


def differences(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """A line for each name whose value is missing, new or another."""
    names = sorted(before.keys() | after.keys())
    return [
        f"{name}: {_where(before.get(name), after.get(name))}" for name in names if before.get(name) != after.get(name)
    ]


def _where(before: object, after: object, at: str = "") -> str:
    """The first place at which two JSON values differ, and both sides there."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(after.keys() - before.keys())]:
            if before.get(key) != after.get(key):
                return _where(before.get(key), after.get(key), f"{at}.{key}")
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (a, b) in enumerate(zip(before, after, strict=True)):
            if a != b:
                return _where(a, b, f"{at}[{i}]")
    return f"{at or 'all'}: was {json.dumps(before)[:200]}, is {json.dumps(after)[:200]}"


def main(arguments: list[str]) -> int:
    """Write the file, or compare with it: 1 if anything differs."""
    match arguments:
        case ["write", file]:
            found = frozen()
            Path(file).write_text(json.dumps(found), encoding="utf-8")
            print(f"{len(found)} goldens written to {file}")
            return 0
        case ["compare", file]:
            before, after = json.loads(Path(file).read_text(encoding="utf-8")), json.loads(json.dumps(frozen()))
            lines = differences(before, after)
            print("\n".join(lines[:40] or [f"{len(before)} goldens are identical"]))
            return 1 if lines else 0
        case _:
            print(__doc__)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
