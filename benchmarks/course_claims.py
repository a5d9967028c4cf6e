"""Makes claims of the course false on purpose: how many of them does the build catch?

`python -m benchmarks.course_claims --n 100` prints the share of each kind, and every claim that nobody caught.
"""

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.course_changes import in_fork, is_wrong
from benchmarks.entry import run_command
from clearhead_lab.course import claims, site, values
from clearhead_lab.course.claims import Claim
from clearhead_lab.course.models import ready
from clearhead_lab.course.page import Part, names, parts
from clearhead_lab.course.running import Runner, inside

OPPOSITES = (
    ("first", "second"), ("second", "first"), ("money", "fish"), ("without", "with"), ("Without", "With"),
    ("falls", "rises"), ("more", "less"), ("nothing", "everything"), ("No", "Every"), ("no", "every"), ("one", "two"),
    ("most", "little"), ("because", "although"), ("enough", "too little"), ("alone", "hardly"), ("cannot", "can"),
    ("decides", "hardly moves"), ("carries", "loses"), ("is", "is not"), ("are", "are not"), ("so", "yet never"),
    ("does not", "does"), ("depends", "never depends"), ("must", "cannot"), ("say", "hide"), ("same", "other"),
)  # fmt: skip
"""Words of a sentence and what says the contrary."""
TEXTS = (("money", "fish"), ("fish", "money"), ("house", "car"), ("old", "red"), ("girl", "boy"), ("red", "old"))


@dataclass(frozen=True)
class Lie:
    """A page in which the claim of one block is false."""

    kind: str
    part: int
    text: str
    changed: str


def otherwise(rng: random.Random, text: str, found: Sequence[tuple[int, int, str]]) -> tuple[str, str] | None:
    """The text with one of these places replaced, and its line there; None if there is no place."""
    if not found:
        return None
    start, end, new = rng.choice(found)
    line = text[text.rfind("\n", 0, start) + 1 : start] + new + text[end:].partition("\n")[0]
    return text[:start] + new + text[end:], line


def of_world(part: Part, claim: Claim, *_: object) -> Iterator[tuple[int, int, str]]:
    """The claim is made of the world where it is false: another head, edit, input or place."""
    for name, code in claim.false.items():
        found = re.search(rf'^{name} = "(.*)"$', part.text, re.MULTILINE)
        assert found, name
        yield part.start + found.start(1), part.start + found.end(1), code


def of_check(part: Part, *_: object) -> Iterator[tuple[int, int, str]]:
    """The threshold is passed from the other side."""
    start = part.text.index("check = ")
    for found in re.finditer(r" (<=|==|<|>) ", part.text[start:].partition("\n")[0]):
        at = part.start + start + found.start(1)
        yield at, at + len(found[1]), {"<": ">", ">": "<", "==": "!=", "<=": ">"}[found[1]]


def of_false(part: Part, claim: Claim, *_: object) -> Iterator[tuple[int, int, str]]:
    """The check cannot fail: the false world is the true one in another spelling."""
    for name, code in claim.false.items():
        start = part.start + part.text.index(code, part.text.index(f"false.{name} = "))
        yield start, start + len(code), f"({claim.world[name]})"


def of_number(part: Part, *_: object) -> Iterator[tuple[int, int, str]]:
    """Another head, layer or place is named."""
    world = part.text.partition("check = ")[0]
    for found in re.finditer(r"(?<=[=(\[, \"])[0-7](?=[,\])}\"])|(?<=blocks\.)[01]", world):
        at = part.start + found.start()
        yield at, at + 1, str((int(found[0]) + 1) % 2 if found[0] in "01" else int(found[0]) - 1)


def of_text(part: Part, *_: object) -> Iterator[tuple[int, int, str]]:
    """Another word stands in a text of the claim."""
    first = part.text.index("\n")
    for old, new in TEXTS:
        for found in re.finditer(rf"\b{old}\b", part.text.partition("check = ")[0][first:]):
            at = part.start + first + found.start()
            yield at, at + len(old), new


def of_sentence(_: Part, claim: Claim, text: str) -> Iterator[tuple[int, int, str]]:
    """The sentence says the contrary."""
    for sentence in claims.SENTENCE.finditer(text):
        if claim.is_said(sentence[0]) and "says = " not in sentence[0]:
            for old, new in OPPOSITES:
                for found in re.finditer(rf"\b{old}\b(?![^{{]*}}}})", sentence[0]):
                    at = sentence.start() + found.start()
                    yield at, at + len(old), new


KINDS: dict[str, Callable[[Part, Claim, str], Iterator[tuple[int, int, str]]]] = {
    "world": of_world, "check": of_check, "false": of_false, "number": of_number, "text": of_text,
    "sentence": of_sentence,
}  # fmt: skip


def lies(rng: random.Random, n: int) -> dict[str, list[Lie]]:
    """Claims made false, by page: the kinds equally often, all claims as likely."""
    told = [(page, i, part) for page in names() for i, part in enumerate(parts(site.source(page)))]
    told = [one for one in told if one[2].language == "claim"]
    drawn: dict[str, list[Lie]] = {page: [] for page in names()}
    while sum(map(len, drawn.values())) < n:
        kind, (page, i, part) = rng.choice(list(KINDS)), rng.choice(told)
        text = site.source(page)
        made = otherwise(rng, text, list(KINDS[kind](part, claims.claim_of(part.text), text)))
        if made and all(made[0] != one.text for one in drawn[page]):
            drawn[page].append(Lie(kind, i, *made))
    return drawn


def uncaught(page: str, made: Sequence[Lie], models: Path, *, with_values: bool) -> Iterator[Lie]:
    """The false claims of this page that the build lets through."""
    with inside(models):
        runner = Runner(page, site.source(page), models, values.read(page) if with_values else None)
        runner.read()
        for i, part in enumerate(runner.parts):
            for lie in made:
                if lie.part == i and not is_wrong(lie.text) and not in_fork(lambda lie=lie: fails(runner, lie)):
                    yield lie
            runner.step(part)
        runner.end()
    assert not runner.ran.problems, runner.ran.problems


def fails(runner: Runner, lie: Lie) -> bool:
    """Whether the claim fails on the page with the lie."""
    runner.parts = list(parts(lie.text))
    runner.step(runner.parts[lie.part])
    return bool(runner.ran.problems)


def main() -> None:
    """Measures the share of false claims that the build catches."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--n", type=int, default=100)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--values", action=argparse.BooleanOptionalAction, default=True)
    asked = options.parse_args()
    torch.set_num_threads(1)
    models, drawn = ready(site.WORK / "models"), lies(random.Random(asked.seed), asked.n)
    missed = Counter[str]()
    for page, made in drawn.items():
        for lie in uncaught(page, made, models, with_values=asked.values):
            missed[lie.kind] += 1
            print(f"{page}.md {lie.kind}: {lie.changed[:200]}", flush=True)
    told = Counter(lie.kind for made in drawn.values() for lie in made)
    for kind in KINDS:
        print(f"{kind:10} {told[kind] - missed[kind]} of {told[kind]} caught")
    print(f"{'all':10} {asked.n - missed.total()} of {asked.n}")


if __name__ == "__main__":
    run_command(main)
