"""Changes a digit, sign, subscript or axis of the course again and again: how many changes does the build notice?

`python -m benchmarks.course_changes --n 500` prints the share, and every change that nobody noticed.
"""

import argparse
import random
import re
from collections import Counter
from dataclasses import dataclass

from course import site
from course.models import ready
from course.page import names
from course.running import run

KINDS = {
    "digit": re.compile(r"\d"),
    "sign": re.compile(r"(?<=[\s(\[{,=\"])[-−](?=[\d\w(])|(?<= )[-+](?= \w)"),
    "subscript": re.compile(r"(?<=\[)[a-z](?=[\],])|(?<=, )[a-z](?=\])|(?<=[A-Za-z]_)[a-zA-Z12](?=\b)"),
    "axis": re.compile(r"(?<=dim=)-?\d|(?<=[a-z]\()-?\d(?=\))|(?<=[,\[])[bthskdf](?==\d)"),
}


@dataclass(frozen=True)
class Change:
    """A change of one place."""

    page: str
    kind: str
    start: int
    end: int
    new: str


def changes(rng: random.Random, n: int) -> list[Change]:
    """Random changes: the kinds equally often, the places of a kind all as likely."""
    places: dict[str, list[tuple[str, int, int, str]]] = {kind: [] for kind in KINDS}
    for name in names():
        text = site.source(name)
        for kind, form in KINDS.items():
            places[kind] += [(name, found.start(), found.end(), found[0]) for found in form.finditer(text)]
    chosen = (rng.choice(list(KINDS)) for _ in range(n))
    picked = ((kind, *rng.choice(places[kind])) for kind in chosen)
    return [Change(name, kind, start, end, other(rng, kind, old)) for kind, name, start, end, old in picked]


def other(rng: random.Random, kind: str, old: str) -> str:
    """Something else of the same kind."""
    if kind == "sign":
        return {"-": "+", "+": "-", "−": ""}[old]
    if kind == "axis" and old.lstrip("-").isdigit():
        return rng.choice([one for one in ("0", "1", "-1", "-2") if one != old])
    among = "0123456789" if old.isdigit() else "bthskdf" if kind == "axis" else "abhijkmnqstvx12"
    return rng.choice([one for one in among if one != old])


def main() -> None:
    """Measures the share of changes that the build notices."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--n", type=int, default=500)
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    models = ready(site.WORK / "models")
    noticed, made = Counter[str](), Counter[str]()
    for change in changes(random.Random(asked.seed), asked.n):
        text = site.source(change.page)
        new = text[: change.start] + change.new + text[change.end :]
        made[change.kind] += 1
        if site.problems([run(change.page, new, models)]):
            noticed[change.kind] += 1
            continue
        line = text.count("\n", 0, change.start)
        print(f"{change.page}.md:{line + 1} {change.kind}: {new.splitlines()[line].strip()[:150]}", flush=True)
    for kind in KINDS:
        print(f"{kind:10} {noticed[kind]} of {made[kind]} noticed")
    print(f"{'all':10} {noticed.total()} of {made.total()}: {noticed.total() / made.total():.1%}")


if __name__ == "__main__":
    main()
