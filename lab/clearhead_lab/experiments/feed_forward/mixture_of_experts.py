"""Eight feed-forwards of which a word goes through one, against one of the same width and one of all their weights."""

from collections.abc import Iterator
from time import process_time

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead_lab.experiment import Row
from clearhead_lab.learning import IGNORED, decoder, learn, mean_loss, size
from clearhead_lab.replacements import mixtures, with_experts
from clearhead_lab.texts import Chain

LANGUAGES, WORDS, FOLLOWERS, LENGTH = 8, 64, 4, 24
EXPERTS, UNITS = 8, 32
KINDS = {"one, as wide as an expert": UNITS, "eight experts": UNITS, "one, as wide as all": EXPERTS * UNITS}


class Languages:
    """Texts in one of several languages of the same words, which differ in what follows a word."""

    def __init__(self, seed: int) -> None:
        self.chains = [Chain(WORDS, followers=FOLLOWERS, seed=1000 * seed + i) for i in range(LANGUAGES)]

    def batch(self, n: int) -> tuple[Tensor, Tensor]:
        """n t: as many texts of each language, which begin with its name, and the next words but the first."""
        texts = [chain.text(n // LANGUAGES, LENGTH) for chain in self.chains]
        names = (WORDS + torch.arange(LANGUAGES)).repeat_interleave(n // LANGUAGES)
        rows = torch.cat([names[:, None], torch.cat(texts)], 1)
        labels = rows[:, 1:].clone()
        labels[:, 0] = IGNORED
        return rows[:, :-1], labels


def used(network: Transformer) -> int:
    """The weights that a word goes through: all but the matrices of feed-forwards that have no gradient from a row."""
    silent = 0
    for block in network.last_stack.blocks:
        network.zero_grad()
        feed_forward = block.get_submodule("ffn")
        feed_forward(torch.ones(1, 1, network.last_stack.config.d_model)).sum().backward()
        silent += sum(p.numel() for p in feed_forward.parameters() if p.grad is None or not p.grad.any())
    return size(network.last_stack.blocks) - silent


@torch.no_grad()
def sorted_by_language(network: Transformer, languages: Languages) -> float:
    """The share of words that go through the expert that takes most of their language, the mean over blocks."""
    network(languages.batch(LANGUAGES * 16)[0])
    shares: list[float] = []
    for mixture in mixtures(network):
        assert mixture.chosen is not None
        of_language = mixture.chosen.view(LANGUAGES, -1)
        counts = torch.stack([(of_language == i).sum(1) for i in range(EXPERTS)], 1)
        shares.append((counts.amax(1) / counts.sum(1)).mean().item())
    return sum(shares) / len(shares)


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """Loss over the languages' entropy, weights, weights that a word goes through, and time of a step."""
    languages = Languages(seed)
    for kind, units in KINDS.items():
        network = decoder(WORDS + LANGUAGES, d_model=32, d_ff=units, positions=c.Learned(max_length=LENGTH))
        if kind == "eight experts":
            with_experts(network, EXPERTS)
        weights, steps = size(network.last_stack.blocks), 300 if quick else 800
        begun = process_time()
        learn(network, lambda: languages.batch(32), steps=steps)
        ms = 1000 * (process_time() - begun) / steps
        with torch.no_grad():
            excess = mean_loss(network, *languages.batch(512)).item() - languages.chains[0].entropy
        values = {"loss over entropy": excess, "weights": float(weights), "ms a step": ms}
        values["used"] = float(used(network))
        if kind == "eight experts":
            values["words with their language's expert"] = sorted_by_language(network, languages)
        yield Row({"feed-forward": kind}, values)
