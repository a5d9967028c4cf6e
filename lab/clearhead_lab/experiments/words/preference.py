"""A network that learned to write, and then which of two of its texts is preferred: by DPO, and by a reward model."""

from collections.abc import Callable, Iterator
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead.recipe.training import AdamW
from clearhead.training import optimizers
from clearhead_lab.experiment import Row
from clearhead_lab.learning import decoder, learn, log_probability, loss_on, sampled
from clearhead_lab.texts import Chain

WORDS, FOLLOWERS, LENGTH, PAIRS, RATE = 16, 4, 12, 32, 3e-4
LIKED = WORDS // 4
"""The texts with more of the first words are preferred, as a judge might like short words."""


def train(network: Transformer, loss: Callable[[], Tensor], steps: int, rate: float = RATE) -> None:
    """Descends a loss that is made anew at each step."""
    optimizer = optimizers.build(network, AdamW(lr=rate))
    for _ in range(steps):
        loss().backward()
        optimizer.set_lr(1.0)
        optimizer.step()
        optimizer.zero_grad()


def pairs(network: Transformer) -> tuple[Tensor, Tensor]:
    """n t, twice: of each two texts that a network writes, the one that is preferred and the other."""
    text = sampled(network, 2 * PAIRS, WORDS, LENGTH).view(2, PAIRS, LENGTH)
    first = (likes(text[0]) > likes(text[1]))[:, None]
    return torch.where(first, text[0], text[1]), torch.where(first, text[1], text[0])


def ahead(worth: Callable[[Tensor], Tensor], before: Transformer) -> Tensor:
    """By how much the preferred one of each two texts of a network is worth more than the other."""
    liked, other = map(worth, pairs(before))
    return liked - other


def gain(network: Transformer, before: Transformer, text: Tensor) -> Tensor:
    """log p/p0 of each text, p0 the network as it was."""
    return log_probability(network, text) - log_probability(before, text)


def prefer(network: Transformer, beta: float, steps: int) -> None:
    """-log sigmoid(beta (log p/p0(liked) - log p/p0(other))), over pairs that the network writes as it is   (DPO)

    With beta 0 it learns the liked text of each pair by its log probability, as in pretraining.
    """
    before = deepcopy(network).requires_grad_(False)

    def loss() -> Tensor:
        if not beta:
            return -log_probability(network, pairs(before)[0]).mean() / LENGTH
        return -F.logsigmoid(beta * ahead(lambda text: gain(network, before, text), before)).mean()

    train(network, loss, steps)


def reinforce(network: Transformer, reward: Transformer, beta: float, steps: int) -> None:
    """Ascends E[r(text) - beta log p/p0(text)] over its own texts, by their log probability   (Williams 1992)"""
    before = deepcopy(network).requires_grad_(False)

    def loss() -> Tensor:
        text = sampled(network, 2 * PAIRS, WORDS, LENGTH)
        worth = reward(text)[:, 0] - beta * gain(network, before, text)
        return -((worth - worth.mean()).detach() * log_probability(network, text)).mean() / LENGTH

    train(network, loss, steps)


def likes(text: Tensor) -> Tensor:
    """b: how much of a text is of the preferred words."""
    return (text[:, 1:] < LIKED).double().mean(1)


@torch.no_grad()
def judge(network: Transformer, before: Transformer, chain: Chain) -> dict[str, float]:
    """The share of preferred words in its texts, the share of steps that the language has, and how far it went."""
    text = sampled(network, 512, WORDS, LENGTH)
    possible = (chain.next[text[:, :-1]] == text[:, 1:, None]).any(-1).double().mean().item()
    distance = gain(network, before, text).mean().item()
    loss = loss_on(network, *chain.batch(512, LENGTH - 1))
    return {"preferred": likes(text).mean().item(), "of the language": possible, "distance": distance, "loss": loss}


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """What a network writes after pretraining, and after training on preferences in four ways.

    The reward model learns -log sigmoid(r(liked) - r(other)) of the texts after pretraining (Ouyang et al. 2022, 3.5).
    """
    chain = Chain(WORDS, followers=FOLLOWERS, seed=seed)
    start = decoder(WORDS, d_model=32, positions=c.Learned(max_length=LENGTH))
    learn(start, lambda: chain.batch(32, LENGTH - 1), steps=200 if quick else 400)
    steps = 40 if quick else 150
    yield Row({"training": "pretraining"}, judge(start, start, chain))
    for name, beta in (("liked texts alone", 0.0), ("DPO, beta 0.5", 0.5), ("DPO, beta 0.05", 0.05)):
        network = deepcopy(start)
        prefer(network, beta, steps)
        yield Row({"training": name}, judge(network, start, chain))
    network, head = deepcopy(start), c.ClassificationHead(n_labels=1, pool="mean")
    reward = decoder(WORDS, head=head, d_model=32, positions=c.Learned(max_length=LENGTH))
    train(reward, lambda: -F.logsigmoid(ahead(reward, start)).mean(), steps, 10 * RATE)
    agrees = torch.cat([ahead(reward, start) for _ in range(10)]) > 0
    reinforce(network, reward, 0.1, steps)
    yield Row({"training": "reward model"}, judge(network, start, chain) | {"agrees": agrees.double().mean().item()})
