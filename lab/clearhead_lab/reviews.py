"""Sentences of film reviews, and whether each is favourable   (Socher et al. 2013, SST-2), as ids of whole words."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.brief import brief
from clearhead.data.files import read_lines
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead_lab.datasets import datasets

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
