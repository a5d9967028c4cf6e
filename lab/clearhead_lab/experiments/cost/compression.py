"""Weights rounded to 8 and 4 bits, heads and small weights removed, and what that costs."""

import math
from collections.abc import Iterator
from copy import deepcopy

from torch import nn
from torch.nn.utils import prune

from clearhead import config as c
from clearhead.analysis.pruning import without_heads
from clearhead.config.adapter import Bits
from clearhead.model import Transformer
from clearhead.model.fast.grouped import GroupedLinear, rounded_to
from clearhead_lab.experiment import Row
from clearhead_lab.learning import decoder, learn, loss_on
from clearhead_lab.texts import N_CHARACTERS, manual

LENGTH, BATCH = 64, 16
BITS: tuple[Bits, ...] = (8, 4)


def told(network: Transformer) -> dict[str, float]:
    """Perplexity on new text, and the bytes of the blocks' matrices."""
    n_bytes = 0
    for part in network.last_stack.blocks.modules():
        if isinstance(part, nn.Linear):
            n_bytes += part.weight.nbytes
        elif isinstance(part, GroupedLinear):
            n_bytes += part.integers.nbytes + part.scale.nbytes
    loss = loss_on(network, *manual().valid_batch(128, LENGTH))
    return {"perplexity": math.exp(loss), "bytes": float(n_bytes)}


def rounded(network: Transformer, bits: Bits) -> Transformer:
    """A copy with every matrix rounded, the head's too."""
    made = deepcopy(network)
    rounded_to(made, bits)
    return made


def without_small_weights(network: Transformer, share: float) -> Transformer:
    """A copy in which this share of each matrix, the smallest numbers, is 0."""
    made = deepcopy(network)
    for part in made.last_stack.blocks.modules():
        if isinstance(part, nn.Linear):
            prune.remove(prune.l1_unstructured(part, "weight", amount=share), "weight")
    return made


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Perplexity on new text of Python's manual, and bytes, of one network and of its smaller copies."""
    network = decoder(N_CHARACTERS, positions=c.Learned(max_length=LENGTH))
    learn(network, lambda: manual().batch(BATCH, LENGTH), steps=350 if quick else 1200)
    yield Row({"network": "whole"}, told(network))
    for bits in BITS:
        yield Row({"network": f"{bits} bits"}, told(rounded(network, bits)))
    for share in (0.3, 0.5):
        yield Row({"network": f"{share:.0%} of the weights 0"}, told(without_small_weights(network, share)))
    tokens = manual().batch(4, LENGTH)[0]
    yield Row({"network": "1 of 4 heads removed"}, told(without_heads(network, [tokens], 1).network))
    # A copy, because what is not removed is shared with the whole network.
    halved = deepcopy(without_heads(network, [tokens], 2).network)
    yield Row({"network": "2 of 4 heads removed"}, told(halved))
    for kind, made in (("whole", network), ("2 of 4 heads removed", halved)):
        learn(made, lambda: manual().batch(BATCH, LENGTH), steps=60 if quick else 200, lr=1e-3)
        yield Row({"network": f"{kind}, trained on"}, told(made))
