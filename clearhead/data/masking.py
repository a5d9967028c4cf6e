"""Masks tokens for a network to restore (Devlin et al. 2018, 3.1; Liu et al. 2019, 4.1). Imports no torch."""

from dataclasses import dataclass

import numpy as np

from clearhead.brief import brief
from clearhead.text.special_tokens import continuing, special_ids
from clearhead.text.tokenizers import Tokenizer

HIDDEN, REPLACED = 0.8, 0.1
"""Shares of the chosen tokens that become the mask token, and a random token. The rest keep their token."""


@dataclass(frozen=True)
class Masking:
    """Chooses tokens of a text and hides most of them. Special tokens are never chosen."""

    __repr__ = brief

    mask_id: int
    ordinary: np.ndarray
    """The ids that are not special."""
    is_ordinary: np.ndarray
    """v: whether an id is one of them."""
    continues: np.ndarray
    """v: whether a token is chosen with the one before it."""
    share: float

    @classmethod
    def of(cls, tokenizer: Tokenizer, *, share: float, whole_words: bool) -> "Masking":
        """The masking for a tokenizer. Raises UserError if it has no mask token."""
        n = tokenizer.vocab_size
        is_ordinary = np.ones(n, dtype=bool)
        is_ordinary[sorted(special_ids(tokenizer))] = False
        continues = continuing(tokenizer) if whole_words else np.zeros(n, dtype=bool)
        return cls(tokenizer.need("mask"), np.flatnonzero(is_ordinary), is_ordinary, continues, share)

    def __call__(self, ids: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """n -> the ids to read, and which ones were chosen: the share of the ordinary ids, but at least one word."""
        chosen = self.chosen(ids, random)
        at = np.flatnonzero(chosen)
        lot, other = random.random(len(at)), random.choice(self.ordinary, len(at))
        kept = np.where(lot < HIDDEN + REPLACED, other, ids[at])
        read = ids.copy()
        read[at] = np.where(lot < HIDDEN, self.mask_id, kept)
        return read, chosen

    def chosen(self, ids: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """n, bool: which ids the network restores. Words are taken in random order until they are enough tokens."""
        chosen = np.zeros(len(ids), dtype=bool)
        ordinary = self.is_ordinary[ids]
        goes_on = self.continues[ids] & ordinary
        goes_on[1:] &= ordinary[:-1]
        goes_on[:1] = False
        word = np.cumsum(~goes_on) - 1
        words, sizes = np.unique(word[ordinary], return_counts=True)
        if not len(words):
            return chosen
        order = random.permutation(len(words))
        wanted = max(1, round(self.share * int(ordinary.sum())))
        # Half of a word more than wanted is as good as half of one less.
        n_words = max(1, int((sizes[order].cumsum() - (sizes[order] - 1) / 2 <= wanted).sum()))
        return np.isin(word, words[order[:n_words]])
