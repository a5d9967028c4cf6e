"""Weights rounded to 8 and 4 bits, heads and small weights removed, and what that costs."""

import math
from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import nn
from torch.nn.utils import prune

from clearhead import config as c
from clearhead.analysis.pruning import without_heads
from clearhead.config.adapter import Bits
from clearhead.lab.experiment import Check, Experiment, Figures, Plot, Role, Row
from clearhead.lab.learning import decoder, learn, mean_loss
from clearhead.lab.written import N_CHARACTERS, manual
from clearhead.model import Transformer
from clearhead.model.fast.grouped import GroupedLinear, rounded_to

LENGTH, BATCH = 64, 16
BITS: tuple[Bits, ...] = (8, 4)


@torch.no_grad()
def told(network: Transformer) -> dict[str, float]:
    """Perplexity on new text, and the bytes of the blocks' matrices."""
    n_bytes = 0
    for part in network.last_stack.blocks.modules():
        if isinstance(part, nn.Linear):
            n_bytes += part.weight.nbytes
        elif isinstance(part, GroupedLinear):
            n_bytes += part.integers.nbytes + part.scale.nbytes
    loss = mean_loss(network, *manual().valid_batch(128, LENGTH)).item()
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


def over_whole(f: Figures, name: str, network: str, whole: str = "whole") -> float:
    """A figure over that of the whole network."""
    return f.at(name, network=network) / f.at(name, network=whole)


def costs(network: str, at_most: float, otherwise: str, *, whole: str = "whole", role: Role = "claim") -> Check:
    """The perplexity over the whole network's."""
    what = f"{network}: perplexity over the whole network's"
    return Check(
        what,
        lambda f: over_whole(f, "perplexity", network, whole),
        at_most=at_most,
        role=role,
        otherwise=otherwise,
    )


EXPERIMENT = Experiment(
    name="compression",
    claim="Weights of 8 or 4 bits take a quarter or an eighth of the memory at the same quality, and heads can go.",
    source="document 003 (21, quantization and pruning); Dettmers et al. 2023; Michel et al. 2019",
    measure=measure,
    checks=(
        costs("8 bits", 1.01, "Rounding to 8 bits costs quality."),
        costs("4 bits", 1.05, "8 bits keep the quality, 4 bits do not."),
        Check(
            "8 bits: bytes over the whole network's",
            lambda f: over_whole(f, "bytes", "8 bits"),
            at_most=0.3,
            otherwise="8 bits take more than a quarter of the memory.",
        ),
        Check(
            "4 bits: bytes over the whole network's",
            lambda f: over_whole(f, "bytes", "4 bits"),
            at_most=0.2,
            otherwise="4 bits take more than an eighth of the memory.",
        ),
        costs(
            "2 of 4 heads removed, trained on",
            1.05,
            "Rounding keeps the quality, but a network that loses half of its heads does not regain it.",
            whole="whole, trained on",
        ),
        costs("1 of 4 heads removed", 1.05, "Heads can go only if the network trains on without them.", role="limit"),
        costs(
            "30% of the weights 0",
            1.05,
            "Without the smallest 30% of its weights the network loses quality.",
            role="limit",
        ),
        costs(
            "50% of the weights 0",
            1.05,
            "Without the smaller half of its weights the network loses quality.",
            role="limit",
        ),
    ),
    plot=Plot(x="network", y="perplexity"),
)
