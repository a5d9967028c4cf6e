"""A network that has read English learns to read code: all of its weights, or a few beside them."""

from collections.abc import Iterator
from copy import deepcopy

from clearhead import config as c
from clearhead.config.adapter import AdapterConfig
from clearhead.model import Transformer
from clearhead.model.adapter import adapt
from clearhead_lab.experiment import Row
from clearhead_lab.learning import decoder, learn, loss_on
from clearhead_lab.texts import N_CHARACTERS, library, manual

LENGTH, BATCH = 64, 16
RATES = {"all weights": 3e-3, "LoRA": 1e-2}
"""Adapters start at 0 and take a larger rate (Hu et al. 2021, appendix D)."""
BLOCKS = 3
"""Times that training on code stops to be measured."""


def told(network: Transformer) -> dict[str, float]:
    """The losses on code and on English, and the share of the weights that learn."""
    every = [(p.numel(), p.requires_grad) for p in network.parameters()]
    share = sum(n for n, learns in every if learns) / sum(n for n, _ in every)
    code, english = (loss_on(network, *text.valid_batch(128, LENGTH)) for text in (library(), manual()))
    return {"loss on code": code, "loss on English": english, "share": share}


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
