"""Changes a digit, sign, subscript or axis of the course again and again: how many changes does the build notice?

`python -m benchmarks.course_changes --n 500` prints the share, and every change that nobody noticed. A page runs once:
at each changed part, a copy of the process (fork) runs the rest of the page with the change, until something is not as
it is written.
"""

import argparse
import os
import random
import re
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.entry import run_command
from clearhead_lab.course import glossary, site, values, written
from clearhead_lab.course.models import ready
from clearhead_lab.course.page import FIGURES, Part, names, parts
from clearhead_lab.course.running import Runner, inside

KINDS = {
    "digit": re.compile(r"\d"),
    "sign": re.compile(r"(?<=[\s(\[{,=\"])[-−](?=[\d\w(])|(?<= )[-+](?= \w)"),
    "subscript": re.compile(r"(?<=\[)[a-z](?=[\],])|(?<=, )[a-z](?=\])|(?<=[A-Za-z]_)[a-zA-Z12](?=\b)"),
    "axis": re.compile(r"(?<=dim=)-?\d|(?<=[a-z]\()-?\d(?=\))|(?<=[,\[])[bthskdf](?==\d)"),
}
LIMIT = 120
"""Seconds after which a changed page counts as failed: a build that does not end is noticed."""
LATE = (*FIGURES, "formula")
"""Blocks that may show what the code below them finds."""


@dataclass(frozen=True)
class Change:
    """A change of one place."""

    page: str
    kind: str
    start: int
    end: int
    new: str

    def made(self, text: str) -> str:
        """The page with the change."""
        return text[: self.start] + self.new + text[self.end :]


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


def unnoticed(page: str, made: Sequence[Change], models: Path, *, with_values: bool) -> Iterator[Change]:
    """The changes of this page that the build does not notice."""
    text = site.source(page)
    with inside(models):
        runner = Runner(page, text, models, values.read(page) if with_values else None)
        runner.read()
        for i, part in enumerate(runner.parts):
            for change in made:
                if part.start <= change.start < part.start + len(part.text):
                    new = change.made(text)
                    if not is_wrong(new) and not in_fork(lambda new=new, i=i: fails(runner, list(parts(new)), i)):
                        yield change
            runner.step(part)
        runner.end()
    assert not runner.ran.problems, runner.ran.problems


def is_wrong(text: str) -> bool:
    """Whether something is wrong with a page as it is written."""
    known = glossary.terms(glossary.SOURCE.read_text(encoding="utf-8"))
    return any(written.complaints(list(parts(text)))) or bool(glossary.unknown(text, known))


def fails(runner: Runner, new: list[Part], i: int) -> bool:
    """Whether the run finds something wrong, from its part `i` on. After a change of prose nothing else can be."""
    if len(new) != len(runner.parts):
        return True
    runner.parts, changed = new, new[i].language
    for part in new[i:] if changed in ("python", *LATE) else new[i : i + 1]:
        runner.step(part)
        if runner.ran.problems:
            return True
    if changed in LATE:
        runner.end()
    return bool(runner.ran.problems)


def in_fork(work: Callable[[], bool]) -> bool:
    """What `work` says in a copy of this process. True if it does not end."""
    with warnings.catch_warnings():  # Newer Pythons warn of threads, of which the course uses none.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        signal.alarm(LIMIT)
        code = 2
        try:
            code = int(work())
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1, -signal.SIGALRM), f"a page ended with {code}"
    return code != 0


def main() -> None:
    """Measures the share of changes that the build notices."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--n", type=int, default=500)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--values", action=argparse.BooleanOptionalAction, default=True)
    asked = options.parse_args()
    torch.set_num_threads(1)
    models = ready(site.WORK / "models")
    drawn = changes(random.Random(asked.seed), asked.n)
    missed = Counter[str]()
    for page in names():
        text = site.source(page)
        for change in unnoticed(page, [one for one in drawn if one.page == page], models, with_values=asked.values):
            missed[change.kind] += 1
            line = text.count("\n", 0, change.start)
            new = change.made(text).splitlines()[line].strip()
            print(f"{page}.md:{line + 1} {change.kind}: {text.splitlines()[line].strip()[:150]}", flush=True)
            print(f"    now {new[:150]}", flush=True)
    made = Counter(one.kind for one in drawn)
    for kind in KINDS:
        print(f"{kind:10} {made[kind] - missed[kind]} of {made[kind]} noticed")
    n = len(drawn) - missed.total()
    print(f"{'all':10} {n} of {len(drawn)}: {n / len(drawn):.1%}")


if __name__ == "__main__":
    run_command(main)
