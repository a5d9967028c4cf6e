"""Real data of others, in a folder that the user names: reviews of films, and uses of words with their senses."""

import os
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from clearhead.brief import brief
from clearhead.data.files import read_lines
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead_lab.classifiers import Classes

VARIABLE = "CLEARHEAD_SHARED_DATA"

_named: ContextVar[Path | None] = ContextVar("data folder", default=None)


@dataclass(frozen=True)
class DataSet:
    """Files of others, which the project does not distribute."""

    name: str
    folder: str
    """Their folder in the data folder."""
    files: tuple[str, ...]
    origin: str
    """What to download, from where."""

    def path(self, file: str = "") -> Path:
        """The path of a file, or of the data set's folder. Raises UserError unless every file is there."""
        root = _named.get() or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
        if root is None:
            remedy = f"download {self.origin} to FOLDER/{self.folder}, and give --data FOLDER or set {VARIABLE}"
            raise UserError(f"data: expected the folder that holds {self.name}, got none; {remedy}")
        for name in self.files:
            if not (root / self.folder / name).is_file():
                remedy = f"download {self.origin} to {root / self.folder}"
                raise UserError(f"{root / self.folder / name}: expected a file of {self.name}, found none; {remedy}")
        return root / self.folder / file


@cache
def datasets() -> dict[str, DataSet]:
    """All data sets by name."""
    text = (files("clearhead_lab") / "datasets.toml").read_text(encoding="utf-8")
    return {
        name: DataSet(name, one["folder"], tuple(one["files"]), one["origin"])
        for name, one in tomllib.loads(text).items()
    }


@contextmanager
def data_in(folder: Path | None) -> Iterator[None]:
    """Within the context, experiments read their data from this folder, by default from the environment variable's."""
    token = _named.set(folder)
    try:
        yield
    finally:
        _named.reset(token)


@dataclass(frozen=True)
class Word:
    """A word of a sentence: part of speech, place of its head (-1 for none), relation to the head, and form."""

    text: str
    tag: str
    head: int
    relation: str
    form: str = "_"
    """Such as `Mood=Imp|VerbForm=Fin`, as CoNLL-U writes it."""


def read_dependencies(split: str) -> list[list[Word]]:
    """The sentences of a split of the treebank: train or test. Raises UserError for a line of another form."""
    source = datasets()["ud-english"]
    path = source.path(next(name for name in source.files if split in name))
    found: list[list[Word]] = [[]]
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if not line.strip():
            found.append([])
        elif fields[0].isdecimal():
            if len(fields) != 10 or not fields[6].isdecimal():
                raise UserError(f"{path}:{number}: expected the 10 columns of CoNLL-U, got {line!r}; correct it")
            found[-1].append(Word(fields[1], fields[3], int(fields[6]) - 1, fields[7], fields[5]))
    return [sentence for sentence in found if sentence]


def read_sources(split: str) -> list[str]:
    """Where each sentence of a split of the treebank is from, such as email: the first word of its name."""
    source = datasets()["ud-english"]
    path = source.path(next(name for name in source.files if split in name))
    mark = "# sent_id = "
    return [line.removeprefix(mark).partition("-")[0] for line in read_lines(path) if line.startswith(mark)]


FIRST, UNKNOWN, MASK = 0, 1, 2
"""Ids of the token before each sentence, of rare words and of hidden ones. Words come after them."""
LONGEST = 32
"""Words of a sentence that are read."""


@dataclass(frozen=True)
class Reviews:
    """Sentences and their labels, 1 for a favourable one."""

    __repr__ = brief

    texts: list[str]
    labels: Tensor

    @classmethod
    def read(cls, split: str) -> "Reviews":
        """The sentences of a split: train, dev or test. Raises UserError for a line of another form."""
        path = datasets()["sst2"].path(f"{split}.tsv")
        rows = [line.rpartition("\t") for line in read_lines(path) if line.strip()]
        for number, (text, _, label) in enumerate(rows, start=1):
            if not text.strip() or label not in ("0", "1"):
                raise UserError(f"{path}:{number}: expected a sentence, a tab and 0 or 1, got {label!r}; correct it")
        return cls([text for text, _, _ in rows], torch.tensor([int(label) for _, _, label in rows]))

    def some(self, n: int) -> "Reviews":
        """n of them at random."""
        kept = torch.randperm(len(self.texts))[:n]
        return Reviews([self.texts[i] for i in kept], self.labels[kept])


@dataclass(frozen=True)
class Words:
    """A vocabulary of whole words."""

    ids: dict[str, int]

    @classmethod
    def of(cls, texts: Sequence[str], most: int = 4000) -> "Words":
        """The most frequent words of these texts."""
        counted = Counter(word for text in texts for word in text.split())
        return cls({word: i for i, (word, _) in enumerate(counted.most_common(most), start=MASK + 1)})

    @property
    def size(self) -> int:
        return len(self.ids) + MASK + 1

    def tokens(self, texts: Sequence[str]) -> Tokens:
        """The sentences as a batch, each after FIRST."""
        return Tokens.pad(
            [[FIRST, *(self.ids.get(word, UNKNOWN) for word in text.split()[:LONGEST])] for text in texts]
        )


def batches(reviews: Reviews, words: Words, n: int) -> Callable[[], tuple[Tokens, Tensor]]:
    """Draws n sentences with their labels at each call."""

    def batch() -> tuple[Tokens, Tensor]:
        some = reviews.some(n)
        return words.tokens(some.texts), some.labels

    return batch


@dataclass(frozen=True)
class Uses:
    """Sentences, the place of the ambiguous word in each, and its sense."""

    __repr__ = brief

    sentences: list[list[str]]
    places: list[int]
    senses: Classes

    @property
    def texts(self) -> list[str]:
        """The words of each sentence with spaces between them."""
        return [" ".join(words) for words in self.sentences]

    @classmethod
    def read(cls, word: str, split: str) -> Self:
        """Reads the sentences for `word` from a split, train or test. Raises UserError for a malformed line."""
        source = datasets()["coarsewsd20"]
        path, gold = source.path(f"{word}/{split}.data.txt"), source.path(f"{word}/{split}.gold.txt")
        rows = [line.partition("\t") for line in read_lines(path) if line.strip()]
        senses = [line.strip() for line in read_lines(gold) if line.strip()]
        if len(rows) != len(senses):
            raise UserError(f"{gold}: expected a sense for each of {len(rows):,} sentences, got {len(senses):,}")
        for number, (place, _, text) in enumerate(rows, start=1):
            if not place.isdecimal() or int(place) >= len(text.split()):
                raise UserError(f"{path}:{number}: expected the place of a word, a tab and the sentence, got {place!r}")
        if wrong := next((i for i, sense in enumerate(senses, start=1) if not sense.isdecimal()), None):
            raise UserError(f"{gold}:{wrong}: expected the number of a sense, got {senses[wrong - 1]!r}")
        found = np.array([int(sense) for sense in senses])
        return cls([text.split() for _, _, text in rows], [int(place) for place, _, _ in rows], found)

    def drawn(self, n: int, random: np.random.Generator) -> Self:
        """At most n sentences of each sense, in random order."""
        order = random.permutation(len(self.senses))
        kept = np.concatenate([order[self.senses[order] == sense][:n] for sense in np.unique(self.senses)])
        return type(self)([self.sentences[i] for i in kept], [self.places[i] for i in kept], self.senses[kept])
