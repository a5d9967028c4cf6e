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
WRITTEN = "0123456789x+-*()\n"
"""The characters of programs, of which the last one ends them."""
END = len(WRITTEN) - 1
STEPS: dict[str, Callable[[int, int], int]] = {"+": add, "*": mul, "-": sub}
ASKED = dict(zip(STEPS, range(END + 1, END + 4), strict=True))
"""The ids of the same steps in a description."""
OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Mult: "*", ast.Sub: "-"}


def tasks(n: int, steps: int) -> tuple[Tensor, Tensor]:
    """n t: descriptions, the last step first ("times 3 of 2 more than x"), and programs: (x+2)*3, then line breaks."""
    described, written = list[list[int]](), list[str]()
    kinds, numbers = torch.randint(len(STEPS), (n, steps)).tolist(), torch.randint(1, 10, (n, steps)).tolist()
    for one in zip(kinds, numbers, strict=True):
        program, asked = "x", [WRITTEN.index("x")]
        for kind, number in zip(*one, strict=True):
            sign = [*STEPS][kind]
            program = f"({program})" if sign == "*" and program[-2:-1] in ("+", "-") else program
            program, asked = f"{program}{sign}{number}", [ASKED[sign], number, *asked]
        described.append(asked)
        written.append(program)
    longest = max(map(len, written)) + 1
    return torch.tensor(described), torch.tensor(
        [[WRITTEN.index(sign) for sign in one.ljust(longest, "\n")] for one in written]
    )


def run(program: str, x: int) -> int | None:
    """What a Python expression of x, whole numbers and these operators gives, by its syntax tree; nothing is executed.

    None for any other text.
    """
    try:
        return _value(ast.parse(program, mode="eval").body, x)
    except (SyntaxError, ValueError):
        return None


def _value(node: ast.expr, x: int) -> int:
    match node:
        case ast.BinOp(a, operator, b) if type(operator) in OPERATORS:
            return STEPS[OPERATORS[type(operator)]](_value(a, x), _value(b, x))
        case ast.UnaryOp(ast.USub(), a):
            return -_value(a, x)
        case ast.Name("x"):
            return x
        case ast.Constant(int(number)):
            return number
    raise ValueError


def _text(row: list[int]) -> str:
    return "".join(WRITTEN[i] if i <= END else "?" for i in row).partition("\n")[0]


def right(network: Transformer, described: Tensor, wanted: Tensor, k: int) -> float:
    """The share of tasks of which one of k drawn programs passes all tests."""
    text = continued(network, described.repeat_interleave(TRIES, 0), wanted.shape[1])
    written = [[run(_text(row), x) for x in INPUTS] for row in text[:, described.shape[1] :].tolist()]
    tests = [[run(_text(row), x) for x in INPUTS] for row in wanted.tolist()]
    passed = [written[i * TRIES : (i + 1) * TRIES].count(test) for i, test in enumerate(tests)]
    missed = [math.comb(TRIES - n, k) / math.comb(TRIES, k) for n in passed]
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

    learn(network, batch, steps=150 if quick else 250, cooled=True)
    for steps in (2, MOST, MOST + 1):
        new = tasks(40 if quick else 200, steps)
        yield Row({"steps": steps}, {f"pass@{k}": right(network, *new, k) for k in (1, TRIES)})
