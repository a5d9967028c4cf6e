"""Attention without a softmax: its cost by length, and how well it still retrieves a token."""

from collections.abc import Iterator
from time import perf_counter

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from clearhead import config as c
from clearhead.model import Layout, Tokens
from clearhead.model.attention import Attention
from clearhead.model.attention_bias import AttentionBias
from clearhead_lab.experiment import Row
from clearhead_lab.learning import IGNORED, accuracy, encoder, learn, stack
from clearhead_lab.replacements import make_linear, with_linear_attention

KEYS, VALUES, WIDTH, HEADS, HEAD_WIDTH = 32, 8, 32, 2, 8
FEW, MANY = 8, 32
"""Pairs in a text. A head that is linear keeps a matrix of 8 x 8 numbers of it, so two of them tell 16 keys apart."""
KINDS = ("exact", "linear")


def batch(n: int, pairs: int) -> tuple[Tensor, Tensor]:
    """n 2t: pairs of a key and its value as one word each, and then the keys alone in another order, with labels."""
    keys = torch.rand(n, KEYS).argsort(1)[:, :pairs]
    values = torch.randint(0, VALUES, (n, pairs))
    order = torch.rand(n, pairs).argsort(1)
    asked, answers = keys.gather(1, order), values.gather(1, order)
    words = torch.cat([keys * VALUES + values, KEYS * VALUES + asked], 1)
    return words, torch.cat([torch.full_like(values, IGNORED), answers], 1)


@torch.no_grad()
def cost(kind: str, n: int) -> dict[str, float]:
    """FLOPs and milliseconds of one attention of width 64 over n positions."""
    attention = Attention(stack(8, 64))
    attention.kernel = "explicit"
    if kind == "linear":
        make_linear(attention)
    layout, x = Layout.of(Tokens(torch.zeros(1, n, dtype=torch.long))), torch.randn(1, n, 64)
    attn_bias = AttentionBias.between(layout, layout)
    with FlopCounterMode(display=False) as counter:
        attention(x, layout, attn_bias)
    begun = perf_counter()
    attention(x, layout, attn_bias)
    return {"FLOPs": float(counter.get_total_flops()), "ms": 1000 * (perf_counter() - begun)}


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Cost by length, and accuracy of finding the value of a key among few and among many pairs."""
    for n in (512, 1024, 2048):
        for kind in KINDS:
            yield Row({"attention": kind, "length": n}, cost(kind, n))
    for pairs, n in ((FEW, 64), (MANY, 32)):
        for kind in KINDS:
            head = c.TaggingHead(n_labels=VALUES)
            changes = dict(d_model=WIDTH, n_heads=HEADS, d_head=HEAD_WIDTH, positions=c.NoPositions())
            network = encoder(KEYS * VALUES + KEYS, head=head, **changes)
            if kind == "linear":
                with_linear_attention(network)
            learn(network, lambda n=n, pairs=pairs: batch(n, pairs), steps=300 if quick else 700, lr=5e-3)
            yield Row({"attention": kind, "pairs": pairs}, {"accuracy": accuracy(network, *batch(64, pairs))})
