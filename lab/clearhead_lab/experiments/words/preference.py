"""A network that learned to write, and then which of two of its texts is preferred (DPO, Rafailov et al. 2023)."""

from collections.abc import Iterator
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead.recipe.training import AdamW
from clearhead.training import optimizers
from clearhead_lab.experiment import Row
from clearhead_lab.learning import decoder, learn, log_probability, mean_loss, sampled
from clearhead_lab.texts import Chain

WORDS, FOLLOWERS, LENGTH, PAIRS, RATE = 16, 4, 12, 32, 3e-4
LIKED = WORDS // 4
"""The texts with more of the first words are preferred, as a judge might like short words."""


def prefer(network: Transformer, beta: float, steps: int) -> None:
    """-log sigmoid(beta (log p/p0(liked) - log p/p0(other))), p0 the network as it was, over pairs that p0 writes.

    With beta 0 it learns the liked text of each pair by its log probability, as in pretraining.
    """
    before = deepcopy(network).requires_grad_(False)
    optimizer = optimizers.build(network, AdamW(lr=RATE))
    for _ in range(steps):
        text = sampled(before, 2 * PAIRS, WORDS, LENGTH).view(2, PAIRS, LENGTH)
        first = likes(text[0]) > likes(text[1])
        liked, other = torch.where(first[:, None], text[0], text[1]), torch.where(first[:, None], text[1], text[0])
        if beta:
            gains = [log_probability(network, one) - log_probability(before, one) for one in (liked, other)]
            loss = -F.logsigmoid(beta * (gains[0] - gains[1])).mean()
        else:
            loss = -log_probability(network, liked).mean() / LENGTH
        loss.backward()
        optimizer.set_lr(1.0)
        optimizer.step()
        optimizer.zero_grad()


def likes(text: Tensor) -> Tensor:
    """b: how much of a text is of the preferred words."""
    return (text[:, 1:] < LIKED).double().mean(1)


@torch.no_grad()
def judge(network: Transformer, before: Transformer, chain: Chain) -> dict[str, float]:
    """The share of preferred words in its texts, the share of steps that the language has, and how far it went."""
    text = sampled(network, 512, WORDS, LENGTH)
    possible = (chain.next[text[:, :-1]] == text[:, 1:, None]).any(-1).double().mean().item()
    distance = (log_probability(network, text) - log_probability(before, text)).mean().item()
    loss = mean_loss(network, *chain.batch(512, LENGTH - 1)).item()
    return {"preferred": likes(text).mean().item(), "of the language": possible, "distance": distance, "loss": loss}


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """What a network writes after pretraining, and after training on preferences in three ways."""
    chain = Chain(WORDS, followers=FOLLOWERS, seed=seed)
    start = decoder(WORDS, d_model=32, positions=c.Learned(max_length=LENGTH))
    learn(start, lambda: chain.batch(32, LENGTH - 1), steps=200 if quick else 400)
    yield Row({"training": "pretraining"}, judge(start, start, chain))
    for name, beta in (("liked texts alone", 0.0), ("DPO, beta 0.5", 0.5), ("DPO, beta 0.05", 0.05)):
        network = deepcopy(start)
        prefer(network, beta, 40 if quick else 150)
        yield Row({"training": name}, judge(network, start, chain))
