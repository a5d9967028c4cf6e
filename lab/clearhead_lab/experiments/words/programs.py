"""A network that reads what a program should do and writes it, judged by tests: pass@k (Chen et al. 2021)."""

import math
from collections.abc import Callable, Iterator
from operator import add, mul, sub

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead_lab.experiment import Row
from clearhead_lab.learning import IGNORED, decoder, learn

N_NUMBERS, MOST, TRIES = 10, 4, 10
INPUTS = range(-3, 4)
"""The x that each program is tested on."""
X, ADD, TIMES, LESS, END = range(N_NUMBERS, N_NUMBERS + 5)
STEPS: dict[int, Callable[[int, int], int]] = {ADD: add, TIMES: mul, LESS: sub}
"""x 3 LESS is x - 3."""
ASKED = END + 1
"""From this id on stand the same steps in a description."""


def tasks(n: int, steps: int) -> tuple[Tensor, Tensor]:
    """n t: descriptions, the last step first ("times 3 of 2 more than x"), and their programs in the order of work."""
    numbers, kinds = torch.randint(1, N_NUMBERS, (n, steps)), torch.randint(ADD, LESS + 1, (n, steps))
    described = torch.stack([ASKED + kinds.flip(1), numbers.flip(1)], 2).flatten(1)
    written = torch.stack([numbers, kinds], 2).flatten(1)
    column = torch.full((n, 1), X)
    return torch.cat([described, column], 1), torch.cat([column, written, torch.full((n, 1), END)], 1)


def run(program: list[int], x: int) -> int | None:
    """What a program gives for x on a machine with a stack. None for a program that it cannot run."""
    stack = list[int]()
    for word in program:
        if word in STEPS and len(stack) > 1:
            b, a = stack.pop(), stack.pop()
            stack.append(STEPS[word](a, b))
        elif word <= X:
            stack.append(x if word == X else word)
        else:
            return None
    return stack[0] if len(stack) == 1 else None


@torch.no_grad()
def right(network: Transformer, described: Tensor, wanted: Tensor, k: int) -> float:
    """The share of tasks of which one of k drawn programs passes all tests."""
    text = described.repeat_interleave(TRIES, 0)
    for _ in range(wanted.shape[1]):
        text = torch.cat([text, network(text)[:, -1].softmax(-1).multinomial(1)], 1)
    written = [row[: row.index(END)] if END in row else row for row in text[:, described.shape[1] :].tolist()]
    tests = [[run(row[:-1], x) for x in INPUTS] for row in wanted.tolist()]
    passed = [
        sum([run(one, x) for x in INPUTS] == test for one in written[i * TRIES : (i + 1) * TRIES])
        for i, test in enumerate(tests)
    ]
    missed = [math.comb(TRIES - n, k) / math.comb(TRIES, k) for n in passed]
    return 1 - sum(missed) / len(missed)


def measure(_: int, quick: bool) -> Iterator[Row]:
    """The share of new tasks that are solved, by the number of steps and of tries; five steps were never read."""
    network = decoder(ASKED + END, positions=c.Rotary())

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
