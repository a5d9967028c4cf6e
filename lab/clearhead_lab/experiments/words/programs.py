"""A network that reads what to compute and writes it in Python, judged by tests: pass@k (Chen et al. 2021)."""

import ast
import math
from collections.abc import Callable, Iterator
from operator import add, mul, sub

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead_lab.experiment import Row
from clearhead_lab.learning import IGNORED, continued, decoder, learn

MOST, TRIES = 4, 10
INPUTS = range(-3, 4)
"""The x that each program is tested on."""
NAMES, TURNS, LARGEST = "abc", 4, 10**30
"""Names of results, the most turns of a loop in training, and the largest number that a program may reach."""
WRITTEN = (*"0123456789", *"xi", *NAMES, *"=+-*", "\n", "for i in range(", "):", "")
"""The pieces of programs, of which the last one ends them."""
END = len(WRITTEN) - 1
STEPS: dict[str, Callable[[int, int], int]] = {"+": add, "*": mul, "-": sub}
ASKED = dict(zip(STEPS, range(END + 1, END + 4), strict=True))
"""The ids of the same steps in a description."""
OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Mult: "*", ast.Sub: "-"}


def tasks(n: int, steps: int) -> tuple[Tensor, Tensor]:
    """n t: descriptions ("c: twice, add 3"), and programs (c=x, then for i in range(2):c=c+3), each with its END.

    Half of the steps are loops, and half of the loops that add or subtract do so with the number of the turn.
    """
    described, written = list[list[int]](), list[list[int]]()
    for _ in range(n):
        name = NAMES[_below(len(NAMES))]
        program, asked = [name, "=", "x", "\n"], [WRITTEN.index(name)]
        for _ in range(steps):
            sign, turns = [*STEPS][_below(len(STEPS))], 1 + _below(2) * (1 + _below(TURNS - 1))
            value = "i" if turns > 1 and sign != "*" and _below(2) else str(1 + _below(9))
            loop = ["for i in range(", str(turns), "):"] if turns > 1 else []
            program += [*loop, name, "=", name, sign, value, "\n"]
            asked += [WRITTEN.index(str(turns)), ASKED[sign], WRITTEN.index(value)]
        described.append(asked)
        written.append([WRITTEN.index(piece) for piece in program])
    longest = max(map(len, written)) + 1
    return torch.tensor(described), torch.tensor([one + [END] * (longest - len(one)) for one in written])


def _below(n: int) -> int:
    return int(torch.randint(n, ()))


def run(program: str, name: str, x: int) -> int | None:
    """The value that a Python program gives to a name, by its syntax tree; nothing is executed.

    None for a program of anything but assignments, loops of few turns, whole numbers, these operators and x.
    """
    values = {"x": x}
    try:
        _do(ast.parse(program).body, values)
        return values[name]
    except (SyntaxError, ValueError, KeyError):
        return None


def _do(statements: list[ast.stmt], values: dict[str, int]) -> None:
    for statement in statements:
        match statement:
            case ast.Assign([ast.Name(name)], value):
                values[name] = _value(value, values)
            case ast.For(ast.Name(name), ast.Call(ast.Name("range"), [ast.Constant(int(n))], []), inner, []) if n < 10:
                for i in range(n):
                    values[name] = i
                    _do(inner, values)
            case _:
                raise ValueError


def _value(node: ast.expr, values: dict[str, int]) -> int:
    match node:
        case ast.BinOp(a, operator, b) if type(operator) in OPERATORS:
            found = STEPS[OPERATORS[type(operator)]](_value(a, values), _value(b, values))
            if abs(found) <= LARGEST:
                return found
        case ast.UnaryOp(ast.USub(), a):
            return -_value(a, values)
        case ast.Name(name):
            return values[name]
        case ast.Constant(int(number)):
            return number
    raise ValueError


def _text(row: list[int]) -> str:
    pieces = row[: row.index(END)] if END in row else row
    return "".join(WRITTEN[i] if i <= END else "?" for i in pieces)


def right(network: Transformer, described: Tensor, wanted: Tensor, k: int) -> float:
    """The share of tasks of which one of k drawn programs passes all tests."""
    names = [WRITTEN[i] for i in described[:, 0].tolist()]
    text = continued(network, described.repeat_interleave(TRIES, 0), wanted.shape[1])
    written = text[:, described.shape[1] :].unflatten(0, (len(names), TRIES)).tolist()
    missed = list[float]()
    for name, tries, one in zip(names, written, wanted.tolist(), strict=True):
        test, *found = ([run(_text(row), name, x) for x in INPUTS] for row in (one, *tries))
        missed.append(math.comb(TRIES - found.count(test), k) / math.comb(TRIES, k))
    return 1 - sum(missed) / len(missed)


def measure(_: int, quick: bool) -> Iterator[Row]:
    """The share of new tasks that are solved, by the number of steps and of tries; five steps were never read."""
    network = decoder(END + 1 + len(STEPS), positions=c.Rotary())

    def batch() -> tuple[Tensor, Tensor]:
        described, written = tasks(64, int(torch.randint(1, MOST + 1, ())))
        text = torch.cat([described, written], 1)
        labels = text[:, 1:].clone()
        labels[:, : described.shape[1] - 1] = IGNORED
        return text[:, :-1], labels

    learn(network, batch, steps=150 if quick else 1000, cooled=True)
    for steps in (2, MOST, MOST + 1):
        new = tasks(40 if quick else 200, steps)
        yield Row({"steps": steps}, {f"pass@{k}": right(network, *new, k) for k in (1, TRIES)})
