"""Records of attention: products, scaling, softmax, mixing, and whole chains of them."""

import math
from typing import Any

import numpy as np
import torch

from clearhead.trace import Trace
from clearhead_lab.examples.parts import (
    Compute,
    attend,
    encoding,
    f64,
    mixed,
    scaled,
    scores_of,
    stack,
    weights_of,
)
from clearhead_lab.examples.records import Inputs


def spread(d_k: int, **changes: Any) -> float:
    """Var(score) for independent unit-variance queries and keys: d_k times the squared factor on q.k."""
    unit = torch.zeros(1, d_k)
    unit[0, 0] = 1.0
    return d_k * scores_of(unit, unit, **changes).item() ** 2


def row_sums(rows: Any) -> Any:
    """What attention with these weights makes of values that are all 1."""
    return [mixed([row], [[1.0]] * len(row)) for row in rows]


def chain(i: Inputs, **changes: Any) -> Trace:
    """Attention over X with the example's matrices, by whichever names it gives them."""
    given = {"q": ("W_q", "Wq"), "k": ("W_k", "Wk"), "v": ("W_v", "Wv")}
    matrices = {name: f64(i[key]) for name, keys in given.items() for key in keys if key in i}
    width = len(next(iter(matrices.values()))[0])
    return attend(f64(i["X"]), d_k=width, weights=matrices, **changes)


def _s0_10(i: Inputs) -> Any:
    scores = f64([i["x"]] * 4).requires_grad_()
    row = weights_of(scores)[0]
    return max(torch.autograd.grad(p, scores, retain_graph=True)[0].abs().max().item() for p in row)


def _s0_13(i: Inputs) -> Any:
    """exp(s) is the weight of a score over that of a score of 0."""
    weights = weights_of([[*i["s"], 0.0]])[0]
    return [weights[:-1] / weights[-1], 1 / weights[-1] - 1]


def _s0_21(_: Inputs) -> Any:
    seen = attend(torch.randn(3, 4, dtype=torch.float64))
    weights, v, z = (seen[name][0, 0] for name in ("weights", "v", "z"))
    by_hand = sum(w * row for w, row in zip(weights[0], v, strict=True))
    return (z[0] - by_hand).abs().max()


def _s0_23b(i: Inputs) -> Any:
    """Mean largest distance from 1/3 of the weights that 50 random heads give to random words."""
    found = [
        (attend(torch.randn(i["n"], i["d_model"]).double(), d_k=i["d_k"])["weights"] - 1 / 3).abs().max().item()
        for _ in range(50)
    ]
    return sum(found) / len(found)


def _s1_19(i: Inputs) -> Any:
    scores = f64([i["scores_64"]] * 4)
    wide = scores * math.sqrt(512 / 64)  # the same words in heads of 512
    rows = (scores, wide, scaled(scores.tolist(), 64), scaled(wide.tolist(), 512))
    return [weights_of(row)[0] for row in rows]


def _s1_34(i: Inputs) -> Any:
    weights = weights_of(scores_of(i["Q"], i["K"]))
    return [weights[0, 0], weights[0, 2], weights[1, 1]]


def _s2_16(i: Inputs) -> Any:
    """The printed columns, from the matrices of two different heads: they do not determine the head."""
    x, printed = f64(i["X"]), f64(i["M"])
    outputs: list[Any] = []
    for _ in range(2):
        matrices = {name: torch.randn(4, 2, dtype=torch.float64) for name in "qk"}
        weights = attend(x, d_k=2, weights=matrices)["weights"][0, 0]
        values = torch.linalg.solve(x, torch.linalg.solve(weights, printed))
        outputs.append(attend(x, d_k=2, weights=matrices | {"v": values})["z"][0, 0])
    return outputs[0]


def _s3_04(i: Inputs) -> Any:
    weights = {name: f64(i[f"W_{name}"]) for name in "qkv"}
    return attend(f64([i["e_money"], i["e_bank"]]), weights=weights, attn_scale=1.0)["scores"][0, 0, 1]


def _s4_16c(i: Inputs) -> Any:
    """Embeddings, positions, queries, keys, values and mixing in one pass."""
    return chain(i | {"X": (f64(i["E"]) + encoding(range(6), 6)).tolist()})["z"]


def _s4_17(i: Inputs) -> Any:
    """The printed matrix as the given head output times the output matrix that fits best."""
    head, printed = f64(i["O"]), f64(i["M"])
    return head @ torch.linalg.lstsq(head, printed).solution


COMPUTED: dict[str, Compute] = {
    "s0-08": lambda i: 1 / stack(512, d_head=i["d_k"]).score_scale,
    "s0-09": lambda i: weights_of([i["x"]]),
    "s0-10": _s0_10,
    "s0-11a": lambda i: [spread(i["d_k"], attn_scale=1.0), spread(i["d_k"])],
    "s0-11b": lambda i: spread(i["d_k"], attn_scale=1 / i["d_k"]),
    "s0-11c": lambda i: spread(i["d_k"], attn_scale=1 / i["d_k"] ** 2),
    "s0-12": lambda i: scaled(i["Scores"], i["d_k"]),
    "s0-13": _s0_13,
    "s0-14": lambda i: weights_of([i["s"]]),
    "s0-15": lambda i: scaled([i["scores"]] * 3, i["d_k"])[0],
    "s0-16": lambda i: weights_of(i["Scaled"]),
    "s0-17": lambda i: row_sums(i["W"]),
    "s0-19": lambda i: mixed([i["W_row1"]], torch.eye(3)),
    "s0-20": lambda i: mixed([i["w"]], [i["e_money"], i["e_bank"], i["e_grows"]]),
    "s0-21": _s0_21,
    "s0-22": lambda _: attend(torch.randn(3, 4, dtype=torch.float64))["weights"].sum(-1),
    "s0-23b": _s0_23b,
    "s0-39": lambda i: row_sums(i["rows"]),
    "s1-18a": lambda i: weights_of([i["x"]]),
    "s1-18b": lambda i: weights_of([i["x"]]),
    "s1-19": _s1_19,
    "s1-20": lambda i: row_sums(i["rows"]),
    "s1-21a": lambda i: scores_of(i["Q"], i["K"], attn_scale=1.0),
    "s1-21b": lambda i: weights_of(scores_of(i["Q"], i["K"])),
    "s1-22a": lambda i: np.random.RandomState(i["seed"]).randn(4, 4).round(2).tolist(),
    "s1-22b": lambda i: weights_of(i["scores"], causal=True),
    "s1-34": _s1_34,
    "s2-04": lambda i: chain(i)["q"],
    "s2-05": lambda i: chain(i)["k"],
    "s2-06": lambda i: chain(i)["v"],
    "s2-07": lambda i: scores_of(i["Q"], i["K"], attn_scale=1.0),
    "s2-08": lambda i: chain(i, attn_scale=1.0)["scores"],
    "s2-09": lambda _: 1 / stack(4, n_heads=2).score_scale,
    "s2-10": lambda i: weights_of(scaled(i["scores"], 4, attn_scale=2**-0.5)),
    "s2-11": lambda i: chain(i)["weights"],
    "s2-12": lambda i: [row_sums(i["A"]), mixed(i["A"], torch.eye(4))[0, [0, 2]]],
    "s2-13": lambda i: mixed(weights_of(scaled(i["scores"], 4, attn_scale=2**-0.5)), i["V"]),
    "s2-14": lambda i: mixed([i["w"]], i["V"]),
    "s2-15": lambda i: chain(i)["z"],
    "s2-16": _s2_16,
    "s3-01": lambda i: row_sums([i["w"]]),
    "s3-02": lambda i: [1 / stack(2, d_head=d).score_scale for d in i["d_k"]],
    "s3-04": _s3_04,
    "s3-05": lambda i: scaled([i["s"], i["s"]], 2)[0],
    "s3-06": lambda i: weights_of([i["s"]]),
    "s3-07": lambda i: mixed(weights_of([i["s"]]), torch.eye(2)),
    "s4-10": lambda i: chain(i)["q"],
    "s4-11": lambda i: chain(i)["k"],
    "s4-12": lambda i: chain(i)["v"],
    "s4-13": lambda i: scores_of(i["Q"], i["K"], attn_scale=1.0),
    "s4-14a": lambda i: scaled(f64(i["scores"]).round(decimals=2).tolist(), 6),
    "s4-14b": lambda i: scaled(i["scores"], 6, attn_scale=stack(8, d_head=i["d_k"]).score_scale),
    "s4-15": lambda i: weights_of(i["scaled"]),
    "s4-16a": lambda i: mixed(i["A"], i["V"]),
    "s4-16b": lambda i: chain(i)["z"],
    "s4-16c": _s4_16c,
    "s4-17": _s4_17,
}
