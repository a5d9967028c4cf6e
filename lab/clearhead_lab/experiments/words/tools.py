"""A network that calls a calculator as often as it needs: it writes a call, a program the result, and so on."""

from collections.abc import Callable, Iterator
from statistics import mean

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead_lab.experiment import Row
from clearhead_lab.learning import IGNORED, continued, decoder, learn

FEWEST, MOST, WIDE = 2, 4, 4
"""Factors of one digit, and the digits of their product."""
CALL, TIMES, SAYS, NOTHING, N_SYMBOLS = range(10, 15)
"""`CALL 56 TIMES 3` is answered by the digits of 168; `SAYS 168` ends the loop. NOTHING stands for a missing factor."""


def digits(numbers: Tensor, n: int) -> Tensor:
    """n t: the digits of numbers."""
    return numbers[:, None] // 10 ** torch.arange(n - 1, -1, -1) % 10


def number(row: Tensor) -> Tensor:
    """The numbers whose digits these are. Another symbol counts as zero."""
    return (row * (row < 10) * 10 ** torch.arange(row.shape[1] - 1, -1, -1)).sum(1)


def sign(like: Tensor, symbol: int) -> Tensor:
    """A column of one symbol."""
    return torch.full((len(like), 1), symbol)


def questions(n: int, factors: int) -> tuple[Tensor, Tensor]:
    """n t: factors, and the digits of their product."""
    some = torch.randint(2, 10, (n, factors))
    return F.pad(some, (0, MOST - factors), value=NOTHING), digits(some.prod(1), WIDE)


def lesson(n: int, *, calls: bool) -> tuple[Tensor, Tensor]:
    """Question and answer; with calls, each of them and its result between the two. Results are not to be learned."""
    factors = int(torch.randint(FEWEST, MOST + 1, ()))
    asked, answer = questions(n, factors)
    parts, so_far = [(asked, False)], asked[:, 0]
    for factor in asked.unbind(1)[1:factors] if calls else ():
        call = [sign(asked, CALL), digits(so_far, WIDE - 1), sign(asked, TIMES), factor[:, None]]
        so_far = so_far * factor
        parts += [(torch.cat(call, 1), True), (digits(so_far, WIDE), False)]
    parts.append((torch.cat([sign(asked, SAYS), answer], 1), True))
    text = torch.cat([part for part, _ in parts], 1)
    labels = torch.cat([part if learned else part.new_full(part.shape, IGNORED) for part, learned in parts], 1)
    return text[:, :-1], labels[:, 1:]


def answer(network: Callable[[Tensor], Tensor], question: Tensor, adds: int) -> int:
    """What the network says in the end, or -1 if it calls too often. `adds`: how much each result is too large."""
    text = question[None]
    for _ in range(MOST):
        text = continued(network, text, 1, likeliest=True)
        if text[0, -1] != CALL:
            return int(number(continued(network, text, WIDE, likeliest=True)[:, -WIDE:]))
        text = continued(network, text, WIDE + 1, likeliest=True)
        result = number(text[:, -WIDE - 1 : -2]) * number(text[:, -1:]) + adds
        text = torch.cat([text, digits(result, WIDE)], 1)
    return -1


def right(network: Transformer, n: int, factors: int, adds: int = 0) -> float:
    """The share of new products that are right."""
    asked, wanted = questions(n, factors)
    return mean(
        answer(network, one, adds) == product for one, product in zip(asked, number(wanted).tolist(), strict=True)
    )


def measure(_: int, quick: bool) -> Iterator[Row]:
    """The share of right products: alone, with the calculator, and with one that is wrong."""
    n = 20 if quick else 200
    for calls in (False, True):
        network = decoder(N_SYMBOLS, positions=c.Learned(max_length=40))
        learn(network, lambda calls=calls: lesson(64, calls=calls), steps=300 if quick else 500, cooled=True)
        for factors in (FEWEST, MOST):
            labels = {"answers": "with a calculator" if calls else "alone", "factors": factors}
            yield Row(labels, {"right": right(network, n, factors)})
    yield Row({"answers": "with a wrong calculator", "factors": MOST}, {"right": right(network, n, MOST, adds=1)})
