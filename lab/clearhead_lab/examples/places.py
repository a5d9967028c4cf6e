"""Records of positions: sinusoids, wavelengths, rotations and the naive encodings."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead.model.positions import rotary_frequencies, rotation
from clearhead.trace import trace
from clearhead_lab.examples.parts import Compute, Statement, encoding, f64, frequency, stack
from clearhead_lab.examples.records import Inputs
from clearhead_lab.replacements import normalised


def period(dim: int, d: int) -> float:
    """Positions in one turn of 2 pi."""
    return 2 * math.pi / frequency(dim, d)


def embedded(table: list[list[float]]) -> Tensor:
    """These vectors as a stack's embedding makes them, with sinusoidal positions."""
    config = stack(len(table[0]), input=c.TokenInput(vocab_size=len(table)), positions=c.Sinusoidal())
    network = Transformer(c.ModelConfig(encoder=config, head=c.NoHead())).double()
    network.last_stack.table.weight.data = f64(table)
    with trace(network) as seen:
        network(torch.arange(len(table))[None])
    return seen["encoder.embed.sum"]


def _s3_14(i: Inputs) -> Any:
    """Largest error of one rotation a pair, the same wherever it starts, that takes PE(20) to PE(20 + k)."""
    rows = encoding([20, 40, 60, 80], i["d"])
    w = torch.tensor([frequency(dim, i["d"]) for dim in range(0, i["d"], 2)], dtype=torch.float64)
    sine, cosine = rows[0, ::2], rows[0, 1::2]
    turned = [
        torch.stack([sine * (k * w).cos() + cosine * (k * w).sin(), cosine * (k * w).cos() - sine * (k * w).sin()], -1)
        for k in (20, 40, 60)
    ]
    return [(t.flatten() - rows[j + 1]).abs().max() for j, t in enumerate(turned)]


def _s0_33(i: Inputs) -> Any:
    return [period(dim, i["d_model"]) for dim in (0, 1, 2, 3, 500, 501)]


def _beyond(rows: Tensor) -> tuple[float, str]:
    """The share of dimensions that leave their range of the first half of the positions by a tenth in the second."""
    seen, new = rows.chunk(2)
    by = torch.maximum(seen.amin(0) - new.amin(0), new.amax(0) - seen.amax(0))
    shares = {limit: (by > limit).double().mean().item() for limit in (0.01, 0.1, 0.5)}
    told = ", ".join(f"{share:.0%} by more than {limit:g}" for limit, share in shares.items())
    return shares[0.1], f"{told} (values are between -1 and 1)"


def _s1_31(i: Inputs) -> Statement:
    outside, told = _beyond(encoding(range(2 * i["n"]), i["d"]))
    return Statement(outside == 0, f"dimensions that leave the range of the first {i['n']} positions: {told}")


def _s0_63(i: Inputs) -> Statement:
    rotary = rotation(torch.arange(2 * i["n"])[None], *rotary_frequencies(c.Rotary(), i["d_head"]))
    outside, told = _beyond(rotary(torch.ones(1, 1, 2 * i["n"], i["d_head"]))[0, 0])
    return Statement(
        outside == 0, f"dimensions of rotated vectors that leave the range of distances below {i['n']}: {told}"
    )


def _s1_35(i: Inputs) -> Statement:
    change = (encoding([0, 1, 10], i["d"])[:, 6:] - encoding([0], i["d"])[:, 6:]).abs().max().item()
    return Statement(change <= 0.01, f"largest change {change:.4f}")


def _s3_16(i: Inputs) -> Statement:
    three, other, near = encoding(i["positions"], 2)[:, 0].tolist()
    return Statement(abs(three - other) < 0.005, f"sin(3) = {three:.3f}, sin(35) = {other:.3f}, sin(47) = {near:.3f}")


def _s3_29(i: Inputs) -> Statement:
    products = f64([[encoding([p], i["d"])[0] @ encoding([p + k], i["d"])[0] for p in i["p"]] for k in i["k"]])
    apart = (products.amax(1) - products.amin(1)).max().item()
    told = ", ".join(f"{value:.2f}" for value in products[:, 0])
    return Statement(apart < 1e-3, f"{told} at distances 1, 5, 20 from any start")


def _s4_06(i: Inputs) -> Any:
    """d log(1 / w) / log(base), of each dimension."""
    return [i["d"] * -math.log(frequency(dim, i["d"])) / math.log(10_000) for dim in range(i["d"])]


def _s4_28(i: Inputs) -> Statement:
    lengths = encoding(range(5000), i["d"]).norm(dim=-1)
    low, high = lengths.min().item(), lengths.max().item()
    return Statement(high - low < 1e-4, f"length {low:.3f} to {high:.3f} over 5,000 positions")


def dimension(dim: int, i: Inputs) -> Tensor:
    """One dimension at the positions of the record."""
    return encoding(i["positions"], i.get("d_model", i.get("d", 0)))[:, dim]


def row(i: Inputs, d: int | None = None) -> Tensor:
    """The encoding of one position."""
    return encoding([i["pos"]], d or i["d_model"])


COMPUTED: dict[str, Compute] = {
    **{f"s0-32-{dim}": partial(dimension, dim) for dim in (0, 1, 2, 3, 500, 501)},
    **{f"s4-07-{dim}": partial(dimension, dim) for dim in range(6)},
    **{f"s1-13-{p}": row for p in (0, 1, 10, 100)},
    "s0-25": lambda i: normalised([1, 2, 3, 1000], i["max"]),
    "s0-26a": lambda i: period(0, i["d_model"]),
    "s0-26b": lambda i: [1 / frequency(2, i["d_model"]), period(2, i["d_model"])],
    "s0-26c": lambda i: 1 / frequency(50, i["d_model"]),
    "s0-26d": lambda i: 1 / frequency(254, i["d_model"]),
    "s0-27": lambda i: encoding([i["p"]], 512)[0, :2],
    "s0-28a": lambda i: [1 / frequency(2, 512), i["p"] * frequency(2, 512)],
    "s0-28b": lambda i: encoding([i["p"]], 512)[0, 2],
    "s0-29": lambda i: encoding([i["p"]], 512)[0, 128],
    "s0-30": lambda i: [1 / frequency(510, 512), encoding([i["p"]], 512)[0, 510]],
    "s0-31": lambda i: encoding([i["p"]], 512)[0, [0, 1, 2, 3, 510, 511]],
    "s0-33": _s0_33,
    "s0-34": lambda i: encoding(i["p"], 512)[:, 0],
    "s0-63": _s0_63,
    "s0-59": lambda i: encoding([0, 1, 2], i["d"])[:, :10],
    "s1-14a": lambda i: [period(0, i["d"]), encoding([0], i["d"])[0, ::2].numel()],
    "s1-14b": lambda i: period(510, i["d"]),
    "s1-31": _s1_31,
    "s1-35": _s1_35,
    "s3-10": lambda i: row(i, 6),
    "s3-11": lambda i: row(i, 6),
    "s3-12a": lambda _: frequency(0, 6),
    "s3-12b": lambda _: frequency(2, 6),
    "s3-12c": lambda _: frequency(4, 6),
    "s3-14": _s3_14,
    "s3-16": _s3_16,
    "s3-17": lambda i: [normalised([i["position"]], length) for length in i["lengths"]],
    "s3-29": _s3_29,
    "s4-05": lambda i: row(i, 6),
    "s4-06": _s4_06,
    "s4-08": lambda i: embedded([i["e1"]]),
    "s4-09": lambda i: embedded(i["implied_embeddings"]),
    "s4-28": _s4_28,
}
