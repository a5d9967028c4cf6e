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
    starts, pieces = [model.inputs(text)[0].ids[0].tolist() for text in texts], map(model.tokenizer.encode, words)
    asked = [(start, ends) for ends in pieces for start in starts]
    said: list[Tensor] = []
    for i in range(0, len(asked), BATCH):
        part = asked[i : i + BATCH]
        with Evaluating(model.network):
            logits = model.network(Tokens.pad([start + ends for start, ends in part]))
        for (start, ends), one in zip(part, logits.log_softmax(-1), strict=True):
            said.append(one[torch.arange(len(ends)) + len(start) - 1, torch.tensor(ends)].sum())
    return torch.stack(said).view(len(words), len(texts)).mT


@torch.no_grad()
def looks(model: Model, sentence: Words) -> Callable[[int, int], Tensor]:
    """(from, to) -> each head's weight between two words, its pieces added, of the layers one after the other."""
    encoding = model.tokenizer.library.encode(list(sentence), is_pretokenized=True)
    with Evaluating(model.network), trace(model.network) as seen:
        model.network.states(Tokens(torch.tensor([encoding.ids])))
    layers = range(model.network.last_stack.config.n_layers)
    weights = torch.cat([seen[f"encoder.blocks.{i}.attn.weights"][0] for i in layers])
    pieces = torch.tensor([-1 if word is None else word for word in encoding.word_ids])
    return lambda asks, gives: weights[:, pieces == asks][:, :, pieces == gives].sum(2).mean(1)


def estimate(values: Sequence[float] | Tensor) -> dict[str, float]:
    """The mean, and the interval of the means of 95% of the samples that are drawn from the values."""
    found = np.array([float(value) for value in values])
    low, high = interval(resampled(found, np.zeros(len(found))))
    return {"mean": float(found.mean()), "low": low, "high": high}
