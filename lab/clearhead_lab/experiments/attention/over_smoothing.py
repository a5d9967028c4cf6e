"""How alike the vectors of the tokens become with one head and with eight, in new attention and in trained networks."""

from collections.abc import Iterator
from statistics import mean

import torch

from clearhead.model import Transformer
from clearhead.trace import trace
from clearhead_lab.experiment import Row
from clearhead_lab.experiments.norms.norm_training import LENGTH, by_frequency
from clearhead_lab.experiments.norms.residual_ablation import TOKENS, differences, likeness, network, through
from clearhead_lab.learning import DISTANCES, decoder, learn, loss_on
from clearhead_lab.texts import N_CHARACTERS, manual

BLOCKS, ALONE = 6, 4
"""Blocks of the network that reads text, and layers of attention alone."""
HEADS = {"one": 1, "eight": 8}


@torch.no_grad()
def kept(n_heads: int) -> float:
    """The share of the differences between tokens that new layers of attention alone keep."""
    x = torch.randn(1, TOKENS, 64)
    return differences([*through(network(ALONE, n_heads), x, residual=False, norm=False, ffn=False)][-1])


@torch.no_grad()
def alike(reader: Transformer) -> dict[str, float]:
    """The mean cosine of two characters of a text: of the vectors at the end, and of what attention adds to them."""
    with trace(reader) as seen:
        reader(manual().valid_batch(32, LENGTH)[0])
    added = mean(likeness(seen[f"decoder.blocks.{i}.attn.out"]) for i in range(BLOCKS))
    return {"likeness": likeness(seen[f"decoder.blocks.{BLOCKS - 1}.resid_post"]), "likeness of what is added": added}


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """Likeness of the tokens and loss by the number of heads; the width of all heads together is the same."""
    yield Row({"heads": "no network"}, {"frequencies": by_frequency()})
    for name, n_heads in HEADS.items():
        torch.manual_seed(seed)
        alone = mean(kept(n_heads) for _ in range(5 if quick else 40))
        reader = decoder(N_CHARACTERS, n_layers=BLOCKS, n_heads=n_heads, positions=DISTANCES)
        learn(reader, lambda: manual().batch(16, LENGTH), steps=100 if quick else 400, cooled=True)
        loss = loss_on(reader, *manual().valid_batch(128, LENGTH))
        yield Row({"heads": name}, {"loss": loss, "kept by attention alone": alone} | alike(reader))
