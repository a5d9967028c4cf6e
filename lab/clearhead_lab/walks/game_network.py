"""The network of document 004, and its printed tables."""

import torch

from clearhead import config as c
from clearhead.api import Model
from clearhead_lab.examples.records import records
from clearhead_lab.walks.chain import UNKNOWN, Json, Rows, encoder, matrix, printed

TEXT = "When you play game of thrones"
SUM, POSITIONS = "encoder.embed.sum", "encoder.embed.positions"
WORD = dict(query=0, key=1)
"""“When” and “you”, which it gives the most after itself."""


def model() -> Model:
    """The printed matrices.

    The output matrix is lost: the one here makes the printed output of all heads of the printed output of the head, as
    nearly as a matrix can.
    """
    order = records()["s4-04"].inputs["order"]
    words = {UNKNOWN: 0} | {word: i for i, word in enumerate(order, start=1)}
    table: dict[str, list[float]] = dict(zip(TEXT.split(), matrix("s4-09", "implied_embeddings").tolist(), strict=True))
    out = torch.linalg.lstsq(matrix("s4-17", "O"), matrix("s4-17", "M")).solution
    weights = {name: matrix("s4-16b", f"W{name}") for name in "qkv"} | {"out": out}
    up = matrix("s4-27", "W"), matrix("s4-27", "b")
    return encoder(words, table, d_head=4, weights=weights, up=up, positions=c.Sinusoidal())


def theirs(record: str) -> Rows:
    """The printed rows of a record."""
    return records()[record].printed


def table() -> Json:
    """The printed positions as one table, made of six records: one for each dimension."""
    dims = [records()[f"s4-07-{dim}"] for dim in range(6)]
    rows = [list(row) for row in zip(*(one.printed for one in dims), strict=True)]
    causes = [f"Dimension {dim}: {one.cause}" for dim, one in enumerate(dims) if one.cause]
    first = printed("s4-07-1", POSITIONS)
    return first | {"record": "s4-07", "title": "Six positions", "printed": rows, "cause": " ".join(causes)}
