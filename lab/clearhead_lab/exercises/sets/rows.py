"""Learners who point a head at keys."""

from random import Random

from clearhead_lab.exercises.exercise import Allowed, Way
from clearhead_lab.exercises.writing import *

AT = "decoder.blocks.0.attn"
LENGTH = 6
SHOWN = "the cat saw a red dog"
LOOKS = (Allowed(f"{AT}.scores", ("set", "close", "zero", "scale")), Allowed(f"{AT}.weights", ("set", "zero")))
BACK = {t: t - 1 for t in range(1, LENGTH)}
ITSELF = {t: t for t in range(1, LENGTH)}
FIRST = dict.fromkeys(range(1, LENGTH), 0)
NO_SHARES = (
    "The weights of a query no longer add up to 1: you set a cell and left the others. Lower them, or edit scores."
)
OTHER_HEAD = "Head {} looks where it did, and another head does not. Look at the h in the address."


def row(at: int, share: float) -> list[float]:
    """Weights of one query: a share for one key, the rest for another."""
    other = 0 if at else 1
    return [share if s == at else 1 - share if s == other else 0.0 for s in range(LENGTH)]


def rows(key: dict[int, int], head: int) -> Way:
    """Sets the weights of each query to look at one key."""
    return lambda random: shuffled(
        random,
        [
            edit(f"{AT}.weights[h={head},t={t}]", "set", row(s, random.uniform(0.93, 1.0) if t else 1.0))
            for t, s in key.items()
        ],
    )


def scores(key: dict[int, int], head: int) -> Way:
    """Sets one score of each query high."""
    return lambda random: shuffled(
        random, [edit(f"{AT}.scores[h={head},t={t},s={s}]", "set", random.uniform(14, 30)) for t, s in key.items()]
    )


def cells(key: dict[int, int], head: int) -> Way:
    """Sets single weights to 1 and leaves the others as they are."""
    return lambda random: shuffled(
        random, [edit(f"{AT}.weights[h={head},t={t},s={s}]", "set", 1.0) for t, s in key.items()]
    )


def some(key: dict[int, int]) -> Way:
    """Edits some of the queries."""

    def way(random: Random) -> dict[str, object]:
        few = {t: key[t] for t in random.sample(range(2, LENGTH), 3)}
        return pick(rows(few, 0), scores(few, 0))(random)

    return way


def closing(key: dict[int, int], head: int) -> Way:
    """Closes every other key that the mask leaves open."""
    return lambda random: shuffled(
        random,
        [
            edit(f"{AT}.scores[h={head},t={t},s={s}]", "close")
            for t, only in key.items()
            for s in range(t + 1)
            if s != only
        ],
    )
