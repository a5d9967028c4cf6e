"""Conditions on the values of a model, as JSON lists: ["<=", ["max", ["abs", …]], 0.01].

The page's engine evaluates the same lists: ui/src/judge/language.ts is this file in TypeScript, and docs/exercises.md
lists what they may hold. Numbers are float32 values of the model, computed with in float64.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol

import torch
from pydantic import AfterValidator
from torch import Tensor

Term = Any
"""A number, or a list that begins with the name of an operation."""
SLACK = 1e-5
"""The share of the right side by which <= and >= may be missed, because engines differ by this much."""
TOLERANCE = 1e-4
"""The tolerance of = unless the condition gives one."""


def everywhere(condition: Term) -> Term:
    """On the shown input and on every unseen one."""
    return ["and", condition, ["every", "unseen", condition]]


def answered(term: Term, by: float) -> Term:
    """The learner gives this number, to within `by`."""
    return ["=", ["answer"], term, by]


def option(i: int) -> Term:
    """The learner takes this option."""
    return ["=", ["answer"], i]


def apart(left: Term, right: Term) -> Term:
    """The largest difference of two values."""
    return ["max", ["abs", ["-", left, right]]]


def unchanged(at: str, by: float = 1e-4) -> Term:
    """The edits change no number of a value by more than `by`."""
    return ["=", ["value", at], ["plain", at], by]


def changed(at: str, by: float = 1e-3) -> Term:
    """The edits change a number of a value by at least `by`."""
    return [">=", apart(["value", at], ["plain", at]), by]


SHORT_FORMS: dict[str, Callable[..., Term]] = {
    form.__name__: form for form in (everywhere, answered, option, apart, unchanged, changed)
}
"""What sets/*.toml may hold beside the operations. Pages get the full forms."""


def expand(term: Term) -> Term:
    """The term with its short forms written in full."""
    if not isinstance(term, list):
        return term
    name, *rest = map(expand, term)
    return SHORT_FORMS[name](*rest) if name in SHORT_FORMS else [name, *rest]


Condition = Annotated[Term, AfterValidator(expand)]


class Runs(Protocol):
    """The source of the numbers: runs of the model on each input, with and without the learner's edits."""

    @property
    def groups(self) -> Mapping[str, Sequence[str]]:
        """Names of inputs by the name of their group."""
        ...

    def value(self, at: str, on: str, *, plain: bool) -> Tensor:
        """The value at an address when the model reads the input `on`."""
        ...

    def ids(self, stack: str, on: str) -> Tensor:
        """The tokens that a stack reads."""
        ...

    def answer(self) -> float:
        """The number that the learner gave."""
        ...


def holds(term: Term, runs: Runs, on: str) -> bool:
    """True if a condition holds for the input `on`."""
    name, *rest = term
    match name:
        case "and":
            return all(holds(one, runs, on) for one in rest)
        case "or":
            return any(holds(one, runs, on) for one in rest)
        case "not":
            return not holds(rest[0], runs, on)
        case "every":
            return all(holds(rest[1], runs, one) for one in runs.groups.get(rest[0], [rest[0]]))
        case "some":
            return any(holds(rest[1], runs, one) for one in runs.groups.get(rest[0], [rest[0]]))
        case _:
            return bool(_compared(term, runs, on).all())


def number(term: Term, runs: Runs, on: str) -> Tensor:
    """The numbers of a term for the input `on`, float64."""
    if not isinstance(term, list):
        return torch.tensor(float(term), dtype=torch.float64)
    name, *rest = term
    match name:
        case "value" | "plain":
            return runs.value(rest[0], _input(rest[1:], on), plain=name == "plain").double()
        case "ids":
            return runs.ids(rest[0], _input(rest[1:], on)).double()
        case "answer":
            return torch.tensor(runs.answer(), dtype=torch.float64)
        case "share":
            return _compared(rest, runs, on).double().mean()
        case "at":
            value, *index = (number(one, runs, on) for one in rest)
            for i in index:
                value = value[int(i)]
            return value
        case _:
            return FUNCTIONS[name](*(number(one, runs, on) for one in rest))


def _input(given: Sequence[str], on: str) -> str:
    """An input by its name, by default the current one; `.swapped` is what goes with the current one by that name."""
    return on if not given else on + given[0] if given[0].startswith(".") else given[0]


def _compared(term: Term, runs: Runs, on: str) -> Tensor:
    """True if the relation holds, for each pair of numbers of both sides: a tensor of bools."""
    relation, left, right, *rest = term
    a, b = number(left, runs, on), number(right, runs, on)
    slack = SLACK * b.abs().clamp(min=1.0)
    match relation:
        case "<=":
            return a <= b + slack
        case ">=":
            return a >= b - slack
        case "=":
            return (a - b).abs() <= (rest[0] if rest else TOLERANCE)
        case _:
            raise ValueError(f"{relation}: no such relation")


def _argmax(x: Tensor) -> Tensor:
    """The first of the largest."""
    places = torch.arange(x.shape[-1]).expand_as(x)
    return torch.where(x == x.amax(-1, keepdim=True), places, x.shape[-1]).amin(-1).double()


def _triangle(x: Tensor, from_: Tensor) -> Tensor:
    """The cells of the last two axes whose key is at least this far after the query, in order."""
    rows, columns = x.shape[-2:]
    open_ = torch.arange(columns)[None] - torch.arange(rows)[:, None] >= from_
    return x[..., open_]


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    lengths = ((a * a).sum() * (b * b).sum()).sqrt()
    return (a * b).sum() / lengths if lengths > 0 else torch.zeros_like(lengths)


OF_ONE: dict[str, Callable[[Tensor], Tensor]] = {
    # Number by number.
    "abs": torch.abs,
    "exp": torch.exp,
    "sqrt": torch.sqrt,
    "log": torch.log,
    # Of all numbers.
    "sum": torch.sum,
    "mean": torch.mean,
    "max": torch.amax,
    "min": torch.amin,
    "count": lambda x: torch.tensor(float(x.numel()), dtype=torch.float64),
    # Of the last axis.
    "sums": lambda x: x.sum(-1),
    "means": lambda x: x.mean(-1),
    "maxes": lambda x: x.amax(-1),
    "lengths": lambda x: (x * x).sum(-1).sqrt(),
    "argmax": _argmax,
    "softmax": lambda x: x.softmax(-1),
}
OF_TWO: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    # Number by number: of two sides of one shape, or of one side and a single number.
    "+": torch.add,
    "-": torch.sub,
    "*": torch.mul,
    "/": torch.div,
    "cosine": _cosine,
    # Parts: [..., t, t + by] of the last two axes; the cells on or right of that diagonal; all but the first n; the
    # first n.
    "diagonal": lambda x, by: x.diagonal(int(by), -2, -1),
    "triangle": _triangle,
    "drop": lambda x, n: x[int(n) :],
    "keep": lambda x, n: x[: int(n)],
}
FUNCTIONS: dict[str, Callable[..., Tensor]] = {**OF_ONE, **OF_TWO}
