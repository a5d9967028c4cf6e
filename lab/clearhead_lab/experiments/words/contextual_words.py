"""The senses of bank and apple in real sentences: told by vectors that see the sentence, and by those that do not."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.api import load
from clearhead.model import Tokens, Transformer
from clearhead.model.mode import Evaluating
from clearhead.text.tokenizers import Tokenizer
from clearhead_lab.classifiers import (
    Matrix,
    counts,
    interval,
    mean_over_classes,
    predicted,
    resampled,
    standardised,
)
from clearhead_lab.datasets import Uses, datasets
from clearhead_lab.experiment import Row

WORDS = ("bank", "apple")
BATCH = 32


def read(tokenizer: Tokenizer, uses: Uses) -> tuple[list[list[int]], list[list[int]]]:
    """The ids of each sentence, and which of them belong to the word."""
    encodings = tokenizer.library.encode_batch(uses.sentences, is_pretokenized=True)
    at = [
        [i for i, word in enumerate(one.word_ids) if word == place]
        for one, place in zip(encodings, uses.places, strict=True)
    ]
    return [one.ids for one in encodings], at


@torch.no_grad()
def contextual(network: Transformer, ids: list[list[int]], at: list[list[int]]) -> NDArray[np.float32]:
    """n d: the last state of the word in each sentence, the mean of its pieces."""
    found = torch.empty(len(ids), network.last_stack.config.d_model)
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    for start in range(0, len(ids), BATCH):
        part = order[start : start + BATCH]
        with Evaluating(network):
            states, _ = network.states(Tokens.pad([ids[i] for i in part]))
        for i, state in zip(part, states, strict=True):
            found[i] = state[at[i]].mean(0)
    return found.numpy()


@torch.no_grad()
def static(network: Transformer, ids: list[list[int]], at: list[list[int]] | None) -> NDArray[np.float32]:
    """n d: the mean row of the token table, of the word or of the whole sentence."""
    table = network.last_stack.table.weight
    rows = ids if at is None else [[one[i] for i in places] for one, places in zip(ids, at, strict=True)]
    return torch.stack([table[torch.tensor(row)].mean(0) for row in rows]).numpy()


def representations(train: Uses, test: Uses, word: str) -> Iterator[tuple[str, Matrix, Matrix]]:
    """The vectors of both sets of sentences, by kind."""
    model = load(datasets()["sentence-encoder"].path(), dtype=torch.float32)
    network, splits = model.network, [read(model.tokenizer, uses) for uses in (train, test)]
    (ids, at), (test_ids, test_at) = splits
    one_hot = np.eye(len(WORDS))[WORDS.index(word)]
    yield "one-hot", np.tile(one_hot, (len(ids), 1)), np.tile(one_hot, (len(test_ids), 1))
    yield "static", *standardised(static(network, ids, at), static(network, test_ids, test_at))
    yield "bag of words", *counts(train.texts, test.texts)
    yield "TF-IDF", *counts(train.texts, test.texts, tf_idf=True)
    yield "static, sentence", *standardised(static(network, ids, None), static(network, test_ids, None))
    for name, one in (("contextual, untrained", Transformer(network.config)), ("contextual", network)):
        yield name, *standardised(contextual(one, ids, at), contextual(one, test_ids, test_at))


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """Accuracy of a linear classifier of the sense, the mean over both senses, with a 95% interval over sentences."""
    random = np.random.default_rng(seed)
    for word in WORDS:
        train = Uses.read(word, "train").drawn(45 if quick else 150, random)
        test = Uses.read(word, "test").drawn(45 if quick else 150, random)
        right = {
            name: predicted(a, train.senses, b) == test.senses for name, a, b in representations(train, test, word)
        }
        best = resampled(right["contextual"], test.senses)
        for name, one in right.items():
            samples = resampled(one, test.senses)
            low, high = interval(samples)
            ahead, _ = interval(best - samples)
            values = {"accuracy": mean_over_classes(one, test.senses), "low": low, "high": high}
            yield Row({"word": word, "vectors": name}, values | {"contextual is ahead by": ahead})
