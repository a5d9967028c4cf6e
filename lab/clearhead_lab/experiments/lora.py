"""A network that has read English learns to read code: all of its weights, or a few beside them."""

from collections.abc import Iterator
from copy import deepcopy

import torch

from clearhead import config as c
from clearhead.config.adapter import AdapterConfig
from clearhead.model import Transformer
from clearhead.model.adapter import adapt
from clearhead_lab.experiment import Check, Experiment, Figures, Plot, Row
from clearhead_lab.learning import decoder, learn, mean_loss
from clearhead_lab.written import N_CHARACTERS, Written, library, manual

LENGTH, BATCH = 64, 16
RATES = {"all weights": 3e-3, "LoRA": 1e-2}
"""Adapters start at 0 and take a larger rate (Hu et al. 2021, appendix D)."""
BLOCKS = 3
"""Times that training on code stops to be measured."""


@torch.no_grad()
def loss_on(network: Transformer, text: Written) -> float:
    """The loss on new text, in nats a character."""
    return mean_loss(network, *text.valid_batch(128, LENGTH)).item()


def told(network: Transformer) -> dict[str, float]:
    """The losses on code and on English, and the share of the weights that learn."""
    every = [(p.numel(), p.requires_grad) for p in network.parameters()]
    share = sum(n for n, learns in every if learns) / sum(n for n, _ in every)
    return {"loss on code": loss_on(network, library()), "loss on English": loss_on(network, manual()), "share": share}


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Losses after training on English, and then on code with all weights or with adapters of several ranks."""
    network = decoder(N_CHARACTERS, positions=c.Learned(max_length=LENGTH))
    learn(network, lambda: manual().batch(BATCH, LENGTH), steps=250 if quick else 600)
    yield Row({"training": "English only"}, told(network))
    for rank in (0, 1, 4, 16):
        kind = "LoRA" if rank else "all weights"
        made = deepcopy(network)
        if rank:
            adapt(made, AdapterConfig(rank=rank, alpha=2 * rank))
        for i in range(1, BLOCKS + 1):
            steps, warmup = 40 if quick else 200, 20 if i == 1 else 0
            learn(made, lambda: library().batch(BATCH, LENGTH), steps=steps, lr=RATES[kind], warmup=warmup)
            name = f"{kind}, rank {rank}" if rank else kind
            yield Row({"training": name, "blocks of steps": i}, told(made))


def gain(f: Figures, rank: int) -> float:
    """What adapters gain on code over what training all weights gains in the same steps."""

    def loss(training: str) -> float:
        return f.at("loss on code", training=training, **{"blocks of steps": BLOCKS})

    before = f.at("loss on code", training="English only")
    return (before - loss(f"LoRA, rank {rank}")) / (before - loss("all weights"))


EXPERIMENT = Experiment(
    name="lora",
    claim="Adapters of low rank, a few percent of the weights, adapt a network as well as training all of it.",
    source="document 003 (techniques); Hu et al. 2021",
    measure=measure,
    checks=(
        Check(
            "rank 4: share of the weights",
            lambda f: f.at("share", training="LoRA, rank 4"),
            at_most=0.1,
            otherwise="The adapters are more than a tenth of the weights.",
        ),
        Check(
            "rank 4: gain over that of all weights",
            lambda f: gain(f, 4),
            at_least=0.9,
            otherwise="The adapters learn most of what all weights learn, but not as much.",
        ),
        Check(
            "rank 1: gain over that of all weights",
            lambda f: gain(f, 1),
            at_least=0.9,
            role="limit",
            otherwise="Rank 1 is too low: such adapters learn less than all weights do.",
        ),
        Check(
            "training all weights: fall of the loss on code",
            lambda f: (
                f.at("loss on code", training="English only")
                - f.at("loss on code", training="all weights", **{"blocks of steps": BLOCKS})
            ),
            at_least=0.1,
            role="control",
        ),
    ),
    plot=Plot(x="blocks of steps", y="loss on code", by="training"),
)
