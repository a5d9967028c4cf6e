"""Networks that learn from texts which the network before them has written (Shumailov et al. 2023)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead_lab.experiment import Row
from clearhead_lab.learning import decoder, learn, log_probability, loss_on, sampled
from clearhead_lab.texts import Chain

WORDS, FOLLOWERS, LENGTH, TEXTS = 16, 4, 12, 1024
GENERATIONS = 3


@torch.no_grad()
def likeliest(network: Transformer, text: Tensor) -> Tensor:
    """The half of the texts that the network holds likelier."""
    return text[log_probability(network, text).argsort(descending=True)[: len(text) // 2]]


def taught(texts: Tensor, steps: int) -> Transformer:
    """A new network that has read these texts."""
    network = decoder(WORDS, d_model=32, positions=c.Learned(max_length=LENGTH))

    def batch() -> tuple[Tensor, Tensor]:
        some = texts[torch.randint(len(texts), (32,))]
        return some[:, :-1], some[:, 1:]

    learn(network, batch, steps=steps)
    return network


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """The loss on real text over its entropy, generation by generation, by what each one reads."""
    chain = Chain(WORDS, followers=FOLLOWERS, seed=seed)
    n, steps = (32, 60) if quick else (TEXTS, 200)
    real = chain.text(n, LENGTH)
    fresh = chain.batch(512, LENGTH - 1)
    first = taught(real, steps)
    for reads in ("all that was written", "the likelier half", "real text beside it"):
        network = first
        for generation in range(GENERATIONS + 1):
            if generation:
                texts = sampled(network, 2 * n, WORDS, LENGTH)
                texts = likeliest(network, texts) if reads == "the likelier half" else texts[:n]
                network = taught(torch.cat([texts, real]) if reads == "real text beside it" else texts, steps)
            loss = loss_on(network, *fresh)
            yield Row({"reads": reads, "generation": generation}, {"loss": loss - chain.entropy})
