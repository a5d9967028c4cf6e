"""Few labels: a network that was trained on text before, against one that starts with random weights."""

from collections.abc import Iterator
from statistics import mean

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.api import load
from clearhead.model import Tokens, Transformer
from clearhead_lab.classifiers import predicted, standardised
from clearhead_lab.datasets import LONGEST, MASK, Reviews, Words, batches, datasets
from clearhead_lab.experiment import Row
from clearhead_lab.learning import IGNORED, accuracy, encoder, learn

FEW, MANY = 64, 256
RANDOM, SMALL, LARGE = "random weights", "pretrained, small", "pretrained on much text"
DRAWS = 3
"""Sets of labelled sentences, because the accuracy with few labels depends on which they are."""
SHARE = 0.15
"""Words that pretraining hides."""


def network(words: Words, head: c.Head) -> Transformer:
    """Two blocks that read both ways."""
    positions = c.Learned(max_length=LONGEST + 1)
    return encoder(words.size, head=head, d_model=64, dropout=0.1, positions=positions)


def hidden(words: Words, reviews: Reviews) -> tuple[Tokens, Tensor]:
    """Sentences with some words hidden, and the labels of these words (Devlin et al. 2018, 3.1)."""
    tokens = words.tokens(reviews.some(64).texts)
    valid = torch.ones_like(tokens.ids, dtype=torch.bool) if tokens.valid is None else tokens.valid
    chosen = valid & (tokens.ids > MASK) & (torch.rand(tokens.ids.shape) < SHARE)
    labels = tokens.ids.where(chosen, IGNORED)
    return Tokens(tokens.ids.masked_fill(chosen, MASK), tokens.valid), labels[valid]


def pretrained(words: Words, reviews: Reviews, *, steps: int) -> Transformer:
    """A network that restores hidden words. It sees no label."""
    one = network(words, c.LanguageHead(tied=True))
    learn(one, lambda: hidden(words, reviews), steps=steps, lr=2e-3)
    return one


def tuned(words: Words, labelled: Reviews, start: Transformer | None) -> Transformer:
    """A classifier that learns from these labels, of all weights, from `start` or from random ones."""
    one = network(words, c.ClassificationHead(n_labels=2, pool="mean", dropout=0.1))
    if start is not None:
        one.last_stack.load_state_dict(start.last_stack.state_dict())
    learn(one, batches(labelled, words, 32), steps=60 + len(labelled.texts) // 8, lr=1e-3)
    return one


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Accuracy on new sentences by the number of labels, the mean over draws of the labelled sentences."""
    train, test = Reviews.read("train"), Reviews.read("test").some(200 if quick else 1000)
    words = Words.of(train.texts, 2000)
    start = pretrained(words, train, steps=100 if quick else 400)
    encoded = load(datasets()["sentence-encoder"].path(), dtype=torch.float32)
    unseen, tokens = encoded.embed(test.texts).numpy(), words.tokens(test.texts)
    for n in (FEW, MANY) if quick else (32, FEW, 128, MANY):
        found: dict[str, list[float]] = {RANDOM: [], SMALL: [], LARGE: []}
        for _ in range(1 if quick else DRAWS):
            labelled = train.some(n)
            for name, given in ((RANDOM, None), (SMALL, start)):
                found[name].append(accuracy(tuned(words, labelled, given), tokens, test.labels))
            vectors = standardised(encoded.embed(labelled.texts).numpy(), unseen)
            said = predicted(vectors[0], labelled.labels.numpy(), vectors[1])
            found[LARGE].append(float((said == test.labels.numpy()).mean()))
        for name, shares in found.items():
            yield Row({"start": name, "labels": n}, {"accuracy": mean(shares)})
