"""Layers that keep a state of one size: linear attention, a fixed decay as in RWKV, and a chosen one as in Mamba."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model import Layout
from clearhead.model.attention import Attention
from clearhead_lab.experiment import Row
from clearhead_lab.experiments.cost.linear_attention import KEYS, VALUES
from clearhead_lab.experiments.cost.linear_attention import batch as pairs
from clearhead_lab.learning import IGNORED, accuracy, decoder, learn

SYMBOLS, NOISE, WIDTH, LENGTH, PAIRS = 8, 8, 32, 48, 32
EXACT, LINEAR, FIXED, CHOSEN = "attention", "no decay", "fixed decay", "chosen decay"


def keep_state(attention: Attention, kind: str) -> None:
    """Makes an attention keep a state S in place of all keys and values, with the same maps.

    S_t = a_t S_(t-1) + f(k_t) v_t^T,  y_t = f(q_t) S_t over f(q_t) times the sum of the keys,  f = elu + 1

    A head's decay a_t is 1 in linear attention (Katharopoulos et al. 2020), learned in RWKV (Peng et al. 2023, here
    without its shift of tokens), and chosen by x_t in Mamba (Dao and Gu 2024, here without its convolution). Training
    takes all pairs at once: between s and t lies the product of the decays.
    """
    decay = nn.Linear(attention.q.in_features, attention.n_heads)
    nn.init.constant_(decay.bias, 3.0)

    def forward(x: Tensor, layout: Layout, *_: Any, onto: Layout | None = None, **__: Any) -> Tensor:
        maps = (attention.q, attention.k, attention.v)
        q, k, v = (one(x).unflatten(-1, (attention.n_heads, -1)).transpose(1, 2) for one in maps)
        log = F.logsigmoid(decay(x if kind == CHOSEN else torch.zeros_like(x))).mT
        since = (log * (kind != LINEAR)).cumsum(-1)
        kept = (since[..., :, None] - since[..., None, :]).tril().exp().tril()
        weights = (F.elu(q) + 1) @ (F.elu(k) + 1).mT * kept
        out = attention.out((weights @ v / weights.sum(-1, keepdim=True)).transpose(1, 2).flatten(2))
        return out if onto is None else onto.pick(out, layout)

    attention.add_module("decay", decay)
    attention.forward = forward  # pyrefly: ignore


def latest(n: int) -> tuple[Tensor, Tensor]:
    """n t: symbols among noise, two of three, and at each place the latest symbol."""
    tokens = torch.randint(0, SYMBOLS, (n, LENGTH)).masked_fill(torch.rand(n, LENGTH) < 2 / 3, NOISE)
    at = torch.where(tokens == NOISE, -1, torch.arange(LENGTH)).cummax(1).values
    return tokens, tokens.gather(1, at.clamp(min=0)).masked_fill(at < 0, IGNORED)


def build(kind: str, n_symbols: int) -> nn.Module:
    """Two causal blocks. Attention has rotary positions, the others have none."""
    network = decoder(n_symbols, head=c.TaggingHead(n_labels=SYMBOLS), d_model=WIDTH, n_heads=2, positions=c.Rotary())
    for module in list(network.modules()):
        if isinstance(module, Attention) and kind != EXACT:
            keep_state(module, kind)
    return network


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Accuracy of naming the latest symbol among noise, and of finding the value of a key among 32 pairs."""
    steps = 150 if quick else 400
    for kind in (EXACT, LINEAR, FIXED, CHOSEN):
        network = build(kind, SYMBOLS + 1)
        learn(network, lambda: latest(32), steps=steps)
        values = {"latest symbol": accuracy(network, *latest(128))}
        finder = build(kind, KEYS * VALUES + KEYS)
        learn(finder, lambda: pairs(32, PAIRS), steps=2 * steps, lr=5e-3)
        yield Row({"layer": kind}, values | {"value of a key": accuracy(finder, *pairs(64, PAIRS))})
