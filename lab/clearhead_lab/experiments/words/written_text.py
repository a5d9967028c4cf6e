"""Networks that learn from texts which the network before them has written (Shumailov et al. 2023)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead.model import Transformer
from clearhead_lab.experiment import Row
from clearhead_lab.experiments.norms.norm_training import by_frequency
from clearhead_lab.learning import DISTANCES, continued, decoder, learn, log_probability, loss_on
from clearhead_lab.texts import N_CHARACTERS, manual

LENGTH, TEXTS = 32, 1024
GENERATIONS = 3


def generated(network: Transformer, text: Tensor) -> Tensor:
    """Texts of the network, as many and as long, which begin with the first characters of these."""
    return continued(network, text[:, :1], LENGTH - 1)


@torch.no_grad()
def likeliest(network: Transformer, text: Tensor) -> Tensor:
    """The half of the texts that the network holds likelier."""
    return text[log_probability(network, text).argsort(descending=True)[: len(text) // 2]]


def texts_for_next(network: Transformer, real: Tensor, reads: str) -> Tensor:
    """What the next network reads."""
    if reads == "the likelier half":
        return likeliest(network, generated(network, torch.cat([real, real])))
    texts = generated(network, real)
    return torch.cat([texts, real]) if reads == "real text beside it" else texts


def taught(texts: Tensor, steps: int) -> Transformer:
    """A new network that has read these texts."""
    network = decoder(N_CHARACTERS, d_model=32, positions=DISTANCES)

    def batch() -> tuple[Tensor, Tensor]:
        some = texts[torch.randint(len(texts), (16,))]
        return some[:, :-1], some[:, 1:]

    learn(network, batch, steps=steps)
    return network


def measure(_: int, quick: bool) -> Iterator[Row]:
    """The loss on new text of Python's manual, generation by generation, by what each one reads."""
    n, steps = (32, 60) if quick else (TEXTS, 400)
    real = manual().batch(n, LENGTH)[0]
    first = taught(real, steps)
    yield Row({"reads": "frequencies alone"}, {"frequencies": by_frequency()})
    for reads in ("all that was written", "the likelier half", "real text beside it"):
        network = first
        for generation in range(GENERATIONS + 1):
            if generation:
                network = taught(texts_for_next(network, real, reads), steps)
            loss = loss_on(network, *manual().valid_batch(256, LENGTH))
            yield Row({"reads": reads, "generation": generation}, {"loss": loss})
