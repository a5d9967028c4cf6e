"""Products of wider heads vary more, saturate the softmax and stop its gradient; 1/sqrt(d_k) prevents that."""

from collections.abc import Iterator

import torch

from clearhead import config as c
from clearhead_lab.examples.parts import scores_of, weights_of
from clearhead_lab.experiment import Row
from clearhead_lab.learning import copying, decoder, final, learn

KEYS = 16
SCALES = {"none": 0.0, "1/sqrt(d_k)": -0.5, "1/d_k": -1.0}
"""Exponents of d_k in the factor on q·k."""


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Variance of the scores, largest of 16 weights, and the trace of the softmax's Jacobian."""
    for d in (4, 16, 64, 256, 1024):
        q, k = torch.randn(2, 12 if quick else 40, KEYS, d, dtype=torch.float64)
        for scaling, exponent in SCALES.items():
            scores = torch.stack([scores_of(a, b, attn_scale=d**exponent) for a, b in zip(q, k, strict=True)])
            rows = [weights_of(one) for one in scores]
            weights = torch.stack(rows)
            yield Row(
                {"d_k": d, "scaling": scaling},
                {
                    "variance": scores.var().item(),
                    "largest weight": weights.amax(-1).mean().item(),
                    "gradient": (weights * (1 - weights)).sum(-1).mean().item(),
                },
            )
    for scaling in ("none", "1/sqrt(d_k)"):
        yield Row({"scaling": scaling}, {"loss after training": trained(256 ** SCALES[scaling], quick=quick)})


def trained(scale: float, *, quick: bool) -> float:
    """The last loss of a network with one head of width 256 that copies the previous symbol."""
    changes = dict(n_layers=1, n_heads=1, d_head=256, attn_scale=scale, positions=c.Learned(max_length=16))
    network = decoder(16, d_model=64, d_ff=64, **changes)
    return final(learn(network, lambda: copying(16, 32, 16, back=1), steps=150 if quick else 300))
