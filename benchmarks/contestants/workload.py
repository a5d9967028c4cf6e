"""What all contestants of the encoder-decoder benchmarks train on: network, sentences, optimizer. No torch."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from clearhead.config import Config, Probability
from clearhead.data.batches import token_budget_batches

PAD, UNK, BOS, EOS = range(4)
N_SPECIAL = 4


class Workload(Config):
    """Network, sentences and optimizer, the same for all."""

    kind: Literal["translation"] = "translation"
    d_model: PositiveInt = 256
    n_layers: PositiveInt = 3
    """Of the encoder, and as many of the decoder."""
    n_heads: PositiveInt = 4
    d_ff: PositiveInt = 1024
    vocab_size: PositiveInt = 8000
    dropout: Probability = 0.1
    """At every place where `torch.nn.Transformer` has it, attention weights and feed-forward activations included."""

    max_tokens: PositiveInt = 4096
    """Tokens of a batch, source and target together, padding included."""
    n_pairs: PositiveInt = 20_000
    shortest: PositiveInt = 8
    longest: PositiveInt = 40
    """Tokens of a sentence, without <bos> and <eos>."""
    median: PositiveInt = 14
    spread: PositiveFloat = 0.35
    """Standard deviation of the logarithm of a source's length, about that of image captions in subwords."""
    seed: int = 0

    lr: PositiveFloat = 5e-4
    betas: tuple[Probability, Probability] = (0.9, 0.98)
    eps: PositiveFloat = 1e-9
    label_smoothing: Probability = 0.1
    clip: PositiveFloat = 1.0

    @property
    def counted(self) -> str:
        """What the rate counts."""
        return "target tokens"

    @property
    def described(self) -> str:
        """For a report."""
        return (
            f"{self.n_layers}+{self.n_layers} layers x {self.d_model}, dropout {self.dropout},"
            f" in batches of {self.max_tokens} tokens"
        )

    def sentences(self) -> tuple[list[list[int]], list[list[int]]]:
        """Sources and targets as ids, without <bos> and <eos>: lengths log-normal, words after Zipf."""
        random = np.random.default_rng(self.seed)
        lengths = self.median * np.exp(self.spread * random.standard_normal(self.n_pairs))
        source = np.clip(np.rint(lengths), self.shortest, self.longest).astype(int)
        stretched = source * np.exp(0.15 * random.standard_normal(self.n_pairs))
        target = np.clip(np.rint(stretched), self.shortest, self.longest).astype(int)
        weight = 1 / (np.arange(self.vocab_size - N_SPECIAL) + 2.7)
        share = weight / weight.sum()

        def draw(counts: np.ndarray) -> list[list[int]]:
            ids = N_SPECIAL + random.choice(len(share), size=int(counts.sum()), p=share)
            return [part.tolist() for part in np.split(ids, counts.cumsum()[:-1])]

        return draw(source), draw(target)


Plan = Callable[[list[tuple[int, int]], Workload, int], Sequence[list[int]]]
"""Lengths of source and target, workload, epoch -> the sentences of each batch."""


def by_length(lengths: list[tuple[int, int]], workload: Workload, epoch: int) -> Sequence[list[int]]:
    """The product's own plan, handed to the peers as well: sentences of like lengths together."""
    return token_budget_batches(lengths, max_tokens=workload.max_tokens, seed=workload.seed, epoch=epoch)


def at_random(lengths: list[tuple[int, int]], workload: Workload, epoch: int) -> list[list[int]]:
    """The same sentences in random order; a batch ends where padding would take the next one over the budget."""
    batches: list[list[int]] = []
    batch, widest = list[int](), (0, 0)
    for i in np.random.default_rng((workload.seed, epoch)).permutation(len(lengths)).tolist():
        wider = max(widest[0], lengths[i][0]), max(widest[1], lengths[i][1])
        if batch and (len(batch) + 1) * sum(wider) > workload.max_tokens:
            batches.append(batch)
            batch, wider = list[int](), lengths[i]
        batch.append(i)
        widest = wider
    return [*batches, batch]
