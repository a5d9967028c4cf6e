"""Real sentences with an ambiguous word and its sense   (Loureiro et al. 2021, CoarseWSD-20)."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from clearhead.brief import brief
from clearhead.data.files import read_lines
from clearhead.errors import UserError
from clearhead_lab.classifiers import Classes
from clearhead_lab.datasets import datasets


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
        """The sentences with `word` of a split, train or test. Raises UserError for a line of another form."""
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
