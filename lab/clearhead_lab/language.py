"""Networks that were trained on real text: what they say next, and where their heads look."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from clearhead.api import Model, load
from clearhead.model import Tokens
from clearhead.model.mode import Evaluating
from clearhead.text.tokenizers import Tokenizer
from clearhead.trace import trace
from clearhead_lab.classifiers import interval, resampled
from clearhead_lab.datasets import datasets

Words = Sequence[str]
BATCH = 32


def storyteller() -> Model:
    """The network of children's stories, with the tokenizer of its own folder or of `story-tokenizer`."""
    model = load(datasets()["storyteller"].path(), dtype=torch.float32)
    words = None if model.has_tokenizer else Tokenizer.load(datasets()["story-tokenizer"].path())
    return Model(model.network, words) if words else model


@torch.no_grad()
def next_words(model: Model, texts: Words, words: Words) -> Tensor:
    """n w: the log-probability of each word after each text, the sum over its pieces."""
    said = torch.zeros(len(texts), len(words))
    asked: dict[tuple[int, ...], list[tuple[int, int, int, list[int]]]] = {}
    pieces = [model.tokenizer.encode(word) for word in words]
    for i, text in enumerate(texts):
        start = model.inputs(text)[0].ids[0].tolist()
        for k, ends in enumerate(pieces):
            asked.setdefault((*start, *ends[:-1]), []).append((i, k, len(start), ends))
    rows = list(asked)
    for first in range(0, len(rows), BATCH):
        part = rows[first : first + BATCH]
        with Evaluating(model.network):
            logits = model.network(Tokens.pad(part))
        for row, one in zip(part, logits, strict=True):
            for i, k, n, ends in asked[row]:
                at = torch.arange(n - 1, n - 1 + len(ends))
                said[i, k] = one[at].log_softmax(-1)[torch.arange(len(ends)), torch.tensor(ends)].sum()
    return said


@torch.no_grad()
def looks(model: Model, sentence: Words) -> Callable[[int, int], Tensor]:
    """(from, to) -> each head's weight between two words, its pieces added, of the layers one after the other.

    The place -1 is that of all special tokens together.
    """
    encoding = model.tokenizer.library.encode(list(sentence), is_pretokenized=True)
    with Evaluating(model.network), trace(model.network) as seen:
        model.network.states(Tokens(torch.tensor([encoding.ids])))
    layers = range(model.network.last_stack.config.n_layers)
    weights = torch.cat([seen[f"encoder.blocks.{i}.attn.weights"][0] for i in layers])
    pieces = torch.tensor([-1 if word is None else word for word in encoding.word_ids])
    of = (pieces == torch.tensor([*range(len(sentence)), -1])[:, None]).to(weights)
    between = of / of.sum(1, keepdim=True) @ weights @ of.T
    return lambda asks, gives: between[:, asks, gives]


def estimate(values: Sequence[float] | Tensor) -> dict[str, float]:
    """The mean, and the interval of the means of 95% of the samples that are drawn from the values."""
    found = np.array([float(value) for value in values])
    low, high = interval(resampled(found, np.zeros(len(found), dtype=np.int64)))
    return {"mean": float(found.mean()), "low": low, "high": high}
