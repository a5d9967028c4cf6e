"""A network that may call a calculator: it writes the call, the program around it writes the result, it goes on."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead_lab.experiment import Row
from clearhead_lab.learning import IGNORED, decoder, learn

DIGITS = 3
"""Both factors have three digits, the product has six."""
TIMES, CALL, RESULT, SAYS, N_SYMBOLS = range(10, 15)


def digits(numbers: Tensor, n: int) -> Tensor:
    """n t: the digits of numbers."""
    return numbers[:, None] // 10 ** torch.arange(n - 1, -1, -1) % 10


def number(row: Tensor) -> Tensor:
    """The numbers whose digits these are. Another symbol counts as zero."""
    return (row * (row < 10) * 10 ** torch.arange(row.shape[1] - 1, -1, -1)).sum(1)


def signs(like: Tensor, symbol: int) -> Tensor:
    """A column of one symbol."""
    return torch.full((len(like), 1), symbol)


def questions(n: int) -> tuple[Tensor, Tensor]:
    """n t: two factors, and the digits of their product."""
    factors = torch.randint(10 ** (DIGITS - 1), 10**DIGITS, (n, 2))
    a, b = digits(factors[:, 0], DIGITS), digits(factors[:, 1], DIGITS)
    return torch.cat([a, signs(a, TIMES), b], 1), digits(factors.prod(1), 2 * DIGITS)


def lesson(n: int, *, calls: bool) -> tuple[Tensor, Tensor]:
    """Question and answer; with a call, the question again and the result between them, which is not to be learned."""
    asked, answer = questions(n)
    call = [signs(asked, CALL), asked, signs(asked, RESULT), answer] if calls else []
    text = torch.cat([asked, *call, signs(asked, SAYS), answer], 1)
    labels = text.clone()
    labels[:, : asked.shape[1]] = IGNORED
    if calls:
        labels[:, 2 * asked.shape[1] + 2 : -answer.shape[1] - 1] = IGNORED
    return text[:, :-1], labels[:, 1:]


@torch.no_grad()
def right(network: Transformer, n: int, *, calls: bool, adds: int = 0) -> float:
    """The share of new products that are right. `adds`: a calculator whose results are too large by this."""

    def write(text: Tensor, length: int) -> Tensor:
        for _ in range(length):
            text = torch.cat([text, network(text)[:, -1:].argmax(-1)], 1)
        return text

    asked, answer = questions(n)
    text = asked
    if calls:
        text = write(text, asked.shape[1] + 2)
        a, b = text[:, -asked.shape[1] - 1 : -1].split_with_sizes([DIGITS, DIGITS + 1], 1)
        text = torch.cat([text, digits(number(a) * number(b[:, 1:]) + adds, 2 * DIGITS)], 1)
    text = write(text, 1 + answer.shape[1])
    return (text[:, -answer.shape[1] :] == answer).all(1).double().mean().item()


def measure(_: int, quick: bool) -> Iterator[Row]:
    """The share of right products: alone, with the calculator, and with one that is wrong."""
    n = 50 if quick else 400
    for calls in (False, True):
        network = decoder(N_SYMBOLS, positions=c.Learned(max_length=30))
        learn(network, lambda calls=calls: lesson(64, calls=calls), steps=300 if quick else 500, cooled=True)
        yield Row({"answers": "with a calculator" if calls else "alone"}, {"right": right(network, n, calls=calls)})
    yield Row({"answers": "with a wrong calculator"}, {"right": right(network, n, calls=True, adds=1)})
