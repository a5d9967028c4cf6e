"""What the layers of an encoder tell of real text: how long a word is, its part of speech, the mood of a sentence."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead.api import Model, load
from clearhead.model import Tokens
from clearhead.model.mode import Evaluating
from clearhead.trace import trace
from clearhead_lab.classifiers import read_by_probe
from clearhead_lab.datasets import Reviews, datasets, read_dependencies
from clearhead_lab.experiment import Figures, Row
from clearhead_lab.language import estimate

LENGTH, SPEECH, MOOD, CONTROL = "length", "part of speech", "mood", "a random class"
LONG = (3, 6)
"""Words of up to three letters, of up to six, and longer ones."""


@torch.no_grad()
def layers(model: Model, sentences: list[list[str]]) -> Iterator[tuple[Tensor, list[int]]]:
    """For each sentence, the vectors of the embedding and of each layer, l t d, and the first piece of each word."""
    n = model.network.last_stack.config.n_layers
    for words in sentences:
        encoding = model.tokenizer.library.encode(words, is_pretokenized=True)
        with Evaluating(model.network), trace(model.network) as seen:
            model.network.states(Tokens(torch.tensor([encoding.ids])))
        names = ["encoder.blocks.0.resid_pre", *(f"encoder.blocks.{i}.resid_post" for i in range(n))]
        yield torch.cat([seen[name] for name in names]), [encoding.word_ids.index(i) for i in range(len(words))]


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """The accuracy of linear probes on new sentences by layer, with an interval over words or sentences.

    The control gives each word a class at random, the same everywhere: a probe that learns it knows the word, not
    what the words have in common   (Hewitt and Liang 2019).
    """
    model, draw = load(datasets()["sentence-encoder"].path(), dtype=torch.float32), torch.Generator().manual_seed(seed)
    n, m = (30, 20) if quick else (300, 150)
    parts = [read_dependencies(split) for split in ("train", "test")]
    sentences = [
        [one[i] for i in torch.randperm(len(one), generator=draw)[:k]] for one, k in zip(parts, (n, m), strict=True)
    ]
    words = [word for part in sentences for sentence in part for word in sentence]
    texts = [[word.text for word in sentence] for part in sentences for sentence in part]
    vectors = torch.cat([states[:, first] for states, first in layers(model, texts)], 1)
    tags, forms = sorted({word.tag for word in words}), list(dict.fromkeys(word.text for word in words))
    random = dict(zip(forms, torch.randint(len(tags), (len(forms),), generator=draw).tolist(), strict=True))
    asked = {
        LENGTH: [sum(len(word.text) > limit for limit in LONG) for word in words],
        SPEECH: [tags.index(word.tag) for word in words],
        CONTROL: [random[word.text] for word in words],
    }
    fitted = sum(map(len, sentences[0]))
    for name, classes in asked.items():
        yield from _told(name, vectors, torch.tensor(classes), fitted)
    reviews = [Reviews.read("train").some(20 if quick else 600), Reviews.read("test").some(20 if quick else 300)]
    texts = [text.split() for one in reviews for text in one.texts]
    moods = torch.stack([states.mean(1) for states, _ in layers(model, texts)], 1)
    yield from _told(MOOD, moods, torch.cat([one.labels for one in reviews]), len(reviews[0].texts))


def _told(name: str, vectors: Tensor, classes: Tensor, fitted: int) -> Iterator[Row]:
    for layer, x in enumerate(vectors):
        yield Row({"tells": name, "layer": layer}, estimate(read_by_probe(x, classes, n_fitted=fitted)))


def best_layer(figures: Figures, name: str) -> int:
    """The layer whose vectors tell most."""
    found = figures.all("mean", tells=name)
    return found.index(max(found))


def length_before_speech(figures: Figures) -> float:
    """The layer that tells most of the part of speech less that of the length."""
    return best_layer(figures, SPEECH) - best_layer(figures, LENGTH)


def speech_before_mood(figures: Figures) -> float:
    """The layer that tells most of the mood less that of the part of speech."""
    return best_layer(figures, MOOD) - best_layer(figures, SPEECH)


def gain(figures: Figures) -> float:
    """The part of speech at its best layer less the embedding's: the lower end against the upper one."""
    return max(figures.all("low", tells=SPEECH)) - figures.all("high", tells=SPEECH)[0]


def selectivity(figures: Figures) -> float:
    """The part of speech less the random class, at the layer that tells most of the first."""
    layer = best_layer(figures, SPEECH)
    return figures.at("low", tells=SPEECH, layer=layer) - figures.at("high", tells=CONTROL, layer=layer)
