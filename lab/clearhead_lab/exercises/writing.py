"""Short forms of the terms and answers that exercises are written with."""

import math
from collections.abc import Callable
from random import Random
from typing import Any

import torch

from clearhead.api import Model
from clearhead.model import Tokens
from clearhead_lab.exercises.exercise import Input, Way, ids_of
from clearhead_lab.exercises.language import Term

__all__ = [
    "answered",
    "beside",
    "changed",
    "changing",
    "chosen",
    "differs",
    "edit",
    "edits",
    "every",
    "option_is",
    "pick",
    "plain",
    "reading",
    "replaced",
    "same",
    "says",
    "shuffled",
    "swapped",
    "texts",
    "unchanged",
    "value",
    "word",
]
"""The words in which the exercises of `sets/` are written. Each of those files imports all of them."""
UNSEEN = "unseen"


# --- terms -----------------------------------------------------------------------------------------------------------


def value(at: str, on: str | None = None) -> Term:
    """The value at an address with the learner's edits, on the current input or another."""
    return ["value", at] if on is None else ["value", at, on]


def plain(at: str, on: str | None = None) -> Term:
    """The same without the edits."""
    return ["plain", at] if on is None else ["plain", at, on]


def every(condition: Term) -> Term:
    """On the shown input and on every unseen one."""
    return ["and", condition, ["every", UNSEEN, condition]]


def apart(left: Term, right: Term) -> Term:
    """The largest difference of two values."""
    return ["max", ["abs", ["-", left, right]]]


def same(left: Term, right: Term, by: float = 1e-4) -> Term:
    """The values of both sides differ by at most `by`."""
    return ["=", left, right, by]


def differs(left: Term, right: Term, by: float = 1e-3) -> Term:
    """A number differs by at least this."""
    return [">=", apart(left, right), by]


def unchanged(at: str, by: float = 1e-4) -> Term:
    """The edits do not change this value."""
    return same(value(at), plain(at), by)


def changed(at: str, by: float = 1e-3) -> Term:
    """The edits change this value."""
    return differs(value(at), plain(at), by)


def word(at: Term) -> Term:
    """The likeliest token of a row of logits."""
    return ["argmax", at]


def answered(term: Term, *, by: float) -> Term:
    """The learner's number is this one."""
    return ["=", ["answer"], term, by]


# --- answers ---------------------------------------------------------------------------------------------------------


def edit(at: str, do: str, value: float | list[float] | None = None) -> dict[str, Any]:
    """One edit."""
    made: dict[str, Any] = {"at": at, "do": do}
    return made if value is None else made | {"value": value}


def edits(*made: dict[str, Any], **change: Any) -> dict[str, Any]:
    """An answer of edits, and of a change of the config."""
    answer: dict[str, Any] = {"edits": list(made)}
    return answer | {"change": change} if change else answer


def chosen(i: int) -> Way:
    """A learner who takes an option."""
    return lambda _: {"choice": i}


def says(x: float, *, by: float = 0.0) -> Way:
    """A learner who gives a number: rounded, cut off after three decimals, or off by at most `by`."""

    def way(random: Random) -> dict[str, Any]:
        cut = math.trunc(1000 * x) / 1000
        return {"number": random.choice([x + random.uniform(-by, by), round(x, 3), round(x, 4), cut])}

    return way


def changing(**change: Any) -> Way:
    """A learner who changes the config."""
    return lambda _: edits(**change)


def shuffled(random: Random, made: list[dict[str, Any]]) -> dict[str, Any]:
    """The same edits in another order."""
    random.shuffle(made)
    return {"edits": made}


def pick(*ways: Way) -> Way:
    """A learner who goes one of these ways."""
    return lambda random: random.choice(ways)(random)


# --- choices and inputs ----------------------------------------------------------------------------------------------


def option_is(i: int) -> Term:
    """The learner took this option."""
    return ["=", ["answer"], i]


def texts(words: str, n: int, length: int, seed: int, *, first: str = "") -> dict[str, str]:
    """Unseen inputs: sequences of different words, drawn, after `first`."""
    random, known = Random(seed), [word for word in words.split() if word != first]
    drawn = [random.sample(known, length - bool(first)) for _ in range(n)]
    return {f"unseen{i}": " ".join([*([first] if first else []), *row]) for i, row in enumerate(drawn)}


def beside(inputs: dict[str, str], name: str, change: Callable[[list[str]], list[str]]) -> dict[str, str]:
    """The inputs, and with each another one: `NAME.swapped` is what `change` makes of NAME's words."""
    return inputs | {f"{key}.{name}": " ".join(change(text.split())) for key, text in inputs.items()}


def swapped(i: int, j: int) -> Callable[[list[str]], list[str]]:
    """Two words change places."""

    def change(row: list[str]) -> list[str]:
        row = list(row)
        row[i], row[j] = row[j], row[i]
        return row

    return change


def replaced(i: int, words: str, *, to: int | None = None) -> Callable[[list[str]], list[str]]:
    """The words from i to `to` (by default only word i) become words that are not in the text."""

    def change(row: list[str]) -> list[str]:
        others = iter(word for word in words.split() if word not in row)
        return [next(others) if i <= place <= (i if to is None else to) else word for place, word in enumerate(row)]

    return change


# --- what a model says -----------------------------------------------------------------------------------------------


def reading(model: Model, given: Input, at: str) -> list[float]:
    """The numbers of a value as the model is, row by row."""
    with model.tracing() as seen, torch.no_grad():
        model.network(*(Tokens(torch.tensor([ids])) for ids in ids_of(model, given).values()))
    return seen[at][0].flatten().tolist()
