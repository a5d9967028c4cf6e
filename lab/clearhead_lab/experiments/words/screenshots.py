"""Pictures of pages: a network writes the code of a page and answers questions about it (Antol et al. 2015)."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Tokens
from clearhead_lab.experiment import Row
from clearhead_lab.learning import Paired, continued, learn, stack

KINDS, ROWS, CELLS, SIDE, HEIGHT = 4, 3, 3, 24, 8
"""A page has three rows of one to three cells: pictures, which are filled, texts with lines, buttons and fields."""
NOTHING, ZERO, CODE, COUNT = KINDS, KINDS + 1, KINDS + 11, KINDS + 12
"""The code of a row is the number of its cells and three kinds or NOTHING. COUNT + 2 asks for the number of buttons."""
Asked = tuple[Tensor, Tensor, Tensor]


def questions(n: int, *, counts: bool) -> Asked:
    """n 1 y x: pictures of pages; n 1: what is asked of each; n t: the answers."""
    sizes, kinds = torch.randint(1, CELLS + 1, (n, ROWS, 1)), torch.randint(KINDS, (n, ROWS, CELLS))
    y, x = torch.arange(HEIGHT)[:, None], torch.arange(SIDE)
    cell, after = x * sizes // SIDE, (x + 1) * sizes // SIDE
    looks = torch.stack([x + y >= 0, (y + 0 * x) % 2 > 0, (x + y) % 2 > 0, (x + 0 * y) % 2 > 0]).mT
    drawn = looks[kinds.gather(2, cell), x].mT & (y < HEIGHT - 1) & (cell == after)[:, :, None]
    pictures = drawn.flatten(1, 2)[:, None].float()
    shown = kinds.masked_fill(torch.arange(CELLS) >= sizes, NOTHING)
    if not counts:
        return pictures, torch.full((n, 1), CODE), torch.cat([ZERO + sizes, shown], 2).flatten(1)
    kind = torch.randint(KINDS, (n, 1))
    return pictures, COUNT + kind, ZERO + (shown.flatten(1) == kind).sum(1, keepdim=True)


def batch() -> tuple[Any, Tensor]:
    """Pages with what is asked and what is answered, and the answers as labels."""
    pictures, asked, answers = questions(32, counts=bool(torch.rand(()) < 0.3))
    return (Tokens(pictures), torch.cat([asked, answers[:, :-1]], 1)), answers


def right(reader: Paired, asked: Asked, *, other: int = 0, lower: int = 0) -> float:
    """The share of right answers, with the picture of another page, or with the picture so many pixels lower."""
    pictures, questions, answers = asked
    shown = Tokens(pictures.roll((other, lower), (0, 2)))
    said = continued(partial(reader.network, shown), questions, answers.shape[1], likeliest=True)
    return (said[:, 1:] == answers).all(1).double().mean().item()


def measure(_: int, quick: bool) -> Iterator[Row]:
    """The share of right answers about new pages, by what is asked, with the picture and with other ones."""
    reads = stack(
        1, input=c.PatchInput(image_size=SIDE, patch_size=8, n_channels=1), positions=c.Learned(max_length=10)
    )
    reader = Paired(reads, stack(COUNT + KINDS, positions=c.Learned(max_length=ROWS * (CELLS + 1))))
    learn(reader, batch, steps=150 if quick else 1500, cooled=True)
    for name in ("code", "count"):
        new = questions(50 if quick else 400, counts=name == "count")
        values = {"with another picture": right(reader, new, other=1), "one pixel lower": right(reader, new, lower=1)}
        yield Row({"asked": name}, {"right": right(reader, new)} | values)
