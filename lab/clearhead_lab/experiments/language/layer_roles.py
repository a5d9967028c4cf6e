"""What the layers of an encoder tell of real text: words, those before, subjects, moods, questions, kinds of text."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from clearhead.api import Model, load
from clearhead.model import Tokens
from clearhead.model.mode import Evaluating
from clearhead.trace import trace
from clearhead_lab.classifiers import read_by_probe
from clearhead_lab.datasets import Reviews, Word, datasets, read_dependencies, read_sources
from clearhead_lab.experiment import Figures, Row
from clearhead_lab.language import estimate

LENGTH, SPEECH, MOOD, CONTROL = "length", "part of speech", "mood", "a random class"
BEFORE, KIND, SOURCE = "part of speech of the word before", "question, command or statement", "kind of text"
LINK = "subject and verb"
LONG = (3, 6)
"""Words of up to three letters, of up to six, and longer ones."""
FAR = 3


def kind(sentence: list[Word]) -> str:
    """A question ends with its mark, and the main verb of a command has its mood; other sentences state."""
    commands = any(word.relation == "root" and "Mood=Imp" in word.form for word in sentence)
    return "question" if sentence[-1].text == "?" else "command" if commands else "statement"


def without_end(sentence: list[Word]) -> list[str]:
    """The words without the marks after them, which would tell a question."""
    n = len(sentence)
    while n > 1 and sentence[n - 1].tag == "PUNCT":
        n -= 1
    return [word.text for word in sentence[:n]]


def alike(classes: Sequence[str], n: int, draw: torch.Generator) -> list[int]:
    """The places of at most n examples of each class, drawn at random."""
    order, counted, kept = torch.randperm(len(classes), generator=draw).tolist(), dict[str, int](), list[int]()
    for i in order:
        counted[classes[i]] = counted.get(classes[i], 0) + 1
        kept += [i] * (counted[classes[i]] <= n)
    return kept


def before(sentence: list[Word]) -> list[str]:
    """The part of speech of the word before each word; the first one has none."""
    return ["", *(word.tag for word in sentence[:-1])]


def links(sentence: list[Word]) -> list[int]:
    """FAR and the words from each subject to its verb, or from a verb to its subject, at most FAR; else FAR alone."""
    found = [FAR] * len(sentence)
    for i, word in enumerate(sentence):
        if word.relation == "nsubj" and sentence[word.head].tag == "VERB":
            apart = max(-FAR, min(FAR, word.head - i))
            found[i], found[word.head] = FAR + apart, FAR - apart
    return found


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
        BEFORE: [tags.index(tag) if tag else len(tags) for part in sentences for one in part for tag in before(one)],
        LINK: [link for part in sentences for one in part for link in links(one)],
    }
    fitted = sum(map(len, sentences[0]))
    for name, classes in asked.items():
        yield from _told(name, vectors, torch.tensor(classes), fitted)
    reviews = [Reviews.read("train").some(20 if quick else 600), Reviews.read("test").some(20 if quick else 300)]
    texts = [text.split() for one in reviews for text in one.texts]
    moods = torch.stack([states.mean(1) for states, _ in layers(model, texts)], 1)
    yield from _told(MOOD, moods, torch.cat([one.labels for one in reviews]), len(reviews[0].texts))
    yield from _of_sentences(model, parts, draw, quick=quick)


def _of_sentences(model: Model, parts: list[list[list[Word]]], draw: torch.Generator, *, quick: bool) -> Iterator[Row]:
    """The probes of what a sentence of the treebank does and of where it is from, as many of each class."""
    named = {
        KIND: [[kind(sentence) for sentence in part] for part in parts],
        SOURCE: [read_sources(split) for split in ("train", "test")],
    }
    for name, of in named.items():
        numbers = {one: i for i, one in enumerate(sorted(set(of[0])))}
        each = [n // len(numbers) for n in ((24, 12) if quick else (600, 300))]
        kept = [alike(classes, k, draw) for classes, k in zip(of, each, strict=True)]
        texts = [without_end(part[i]) for part, some in zip(parts, kept, strict=True) for i in some]
        means = torch.stack([states.mean(1) for states, _ in layers(model, texts)], 1)
        classes = [numbers[one[i]] for one, some in zip(of, kept, strict=True) for i in some]
        yield from _told(name, means, torch.tensor(classes), len(kept[0]))


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


def before_then_speech(figures: Figures) -> float:
    """The layer that tells most of the part of speech less that of the word before."""
    return best_layer(figures, SPEECH) - best_layer(figures, BEFORE)


def before_then_link(figures: Figures) -> float:
    """The layer that tells most of subjects and their verbs less that of the word before."""
    return best_layer(figures, LINK) - best_layer(figures, BEFORE)


def link_then_kind(figures: Figures) -> float:
    """The layer that tells most of the kind of a sentence less that of subjects and their verbs."""
    return best_layer(figures, KIND) - best_layer(figures, LINK)


def kind_before_source(figures: Figures) -> float:
    """The layer that tells most of the kind of text less that of the kind of a sentence."""
    return best_layer(figures, SOURCE) - best_layer(figures, KIND)


def speech_before_mood(figures: Figures) -> float:
    """The layer that tells most of the mood less that of the part of speech."""
    return best_layer(figures, MOOD) - best_layer(figures, SPEECH)


def selectivity(figures: Figures) -> float:
    """The part of speech less the random class, at the layer that tells most of the first."""
    layer = best_layer(figures, SPEECH)
    return figures.at("low", tells=SPEECH, layer=layer) - figures.at("high", tells=CONTROL, layer=layer)
