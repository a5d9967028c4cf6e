"""Learning from examples in the text itself: it comes with heads that look for what followed last time."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.analysis.ablation import without
from clearhead.model import Transformer
from clearhead.trace import trace
from clearhead_lab.experiment import Row
from clearhead_lab.learning import IGNORED, accuracy, decoder, learn

SYMBOLS, LENGTH, SHORTEST, LONGEST = 32, 32, 4, 16
"""Texts repeat a random phrase of SHORTEST to LONGEST symbols."""
PAIRS = 8
"""Examples of the few-shot task."""
BLOCKS = 8
"""Times that training stops to be measured."""
ONE, LOCAL = "1 layer", "2 layers, local first"
NETWORKS: dict[str, dict[str, Any]] = {
    ONE: dict(n_layers=1),
    LOCAL: dict(n_layers=2, window=2, window_layers=(0,)),
}
"""The first layer of LOCAL sees a symbol and the one before."""


def texts(n: int) -> tuple[Tensor, Tensor]:
    """n t: repeated phrases, none of whose symbols comes twice, and n: the length of each phrase."""
    phrases = torch.rand(n, SYMBOLS).argsort(1)[:, :LONGEST]
    lengths = torch.randint(SHORTEST, LONGEST + 1, (n,))
    return phrases.gather(1, torch.arange(LENGTH + 1) % lengths[:, None]), lengths


def batch(n: int) -> tuple[Tensor, Tensor]:
    """Texts and the symbols that follow."""
    text, _ = texts(n)
    return text[:, :-1], text[:, 1:]


def repeated(n: int) -> tuple[Tensor, Tensor]:
    """The same, with labels only where the text has shown before what follows."""
    text, lengths = texts(n)
    known = torch.arange(LENGTH) >= lengths[:, None]
    return text[:, :-1], text[:, 1:].where(known, IGNORED)


def shots(n: int) -> tuple[Tensor, Tensor]:
    """PAIRS of a question and its answer, made anew for each text, then one of the questions: what is its answer?"""
    symbols = torch.rand(n, SYMBOLS).argsort(1)[:, : 2 * PAIRS]
    asked = torch.randint(0, PAIRS, (n, 1))
    tokens = torch.cat([symbols, symbols.gather(1, 2 * asked)], 1)
    labels = torch.full_like(tokens, IGNORED)
    labels[:, -1:] = symbols.gather(1, 2 * asked + 1)
    return tokens, labels


@torch.no_grad()
def looking(network: Transformer) -> dict[str, float]:
    """For each head, the weight on the place after the last occurrence of the same symbol, averaged (Olsson et al.)."""
    text, lengths = texts(64)
    place = torch.arange(LENGTH) - lengths[:, None] + 1
    known = place > 0
    found: dict[str, float] = {}
    with trace(network) as seen:
        network(text[:, :-1])
    for i in range(len(network.last_stack.blocks)):
        weights = seen[f"decoder.blocks.{i}.attn.weights"]
        index = place.clamp(min=0)[:, None, :, None].expand(-1, weights.shape[1], -1, 1)
        there = weights.gather(3, index)[..., 0].transpose(1, 2)[known].mean(0)
        found |= {f"decoder.blocks.{i}.attn.z[h={h}]": value for h, value in enumerate(there.tolist())}
    return found


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Along training: accuracy on repetitions and on few-shot questions, and the head that looks for repetitions."""
    block = 50 if quick else 75
    for name, how in NETWORKS.items():
        network = decoder(SYMBOLS, d_model=64, positions=c.Rotary(), **how)
        for i in range(1, BLOCKS + 1):
            learn(network, lambda: batch(32), steps=block, warmup=20 if i == 1 else 0)
            heads = looking(network)
            tokens, labels = shots(256)
            values = {
                "repetitions": accuracy(network, *repeated(64)),
                "few-shot": accuracy(network, tokens, labels),
                "induction": max(heads.values()),
            }
            if i == BLOCKS:
                best = [head for head, weight in heads.items() if weight >= 0.5 * max(heads.values())]
                said = without(network, [tokens], best)[:, -1].argmax(-1)
                values["few-shot without"] = (said == labels[:, -1]).double().mean().item()
            yield Row({"network": name, "blocks of steps": i}, values)
