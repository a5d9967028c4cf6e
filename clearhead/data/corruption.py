"""Corrupts texts for an encoder-decoder to restore: spans by sentinels, or infilling. Imports no torch."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from tokenizers import AddedToken

from clearhead.errors import UserError
from clearhead.recipe.data import Corruption, Spans
from clearhead.text.special_tokens import with_mask_token, with_special
from clearhead.text.tokenizers import Tokenizer

N_SENTINELS = 100
ENDS = (".", "!", "?", "。", "！", "？")
"""Tokens that end a sentence."""


class Corruptor(ABC):
    """From the ids of a text to what the encoder reads and what the decoder writes, without marks."""

    @property
    @abstractmethod
    def extra(self) -> int:
        """The largest id that it puts into a text."""

    @abstractmethod
    def sizes(self, lengths: np.ndarray) -> np.ndarray:
        """n 2: the most ids that the encoder reads and the decoder writes for texts of these lengths, n."""

    @abstractmethod
    def __call__(self, ids: np.ndarray, random: np.random.Generator) -> tuple[list[int], list[int]]:
        """The source and the target of a text."""


@dataclass(frozen=True)
class SpanCorruptor(Corruptor):
    """Spans become sentinels; the target is each sentinel with its span, and one more (Raffel et al. 2020, 3.1.4).

    Every place of the spans is equally likely. (The program of the paper always ends a text with a span.)
    """

    sentinels: tuple[int, ...]
    share: float
    mean_length: float

    @property
    def extra(self) -> int:
        return max(self.sentinels)

    def counts(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of tokens in spans, and of spans: one at least, and with a token between two."""
        n_noise = np.clip(np.round(lengths * self.share).astype(np.int64), 1, np.maximum(lengths - 1, 1))
        n_spans = np.round(n_noise / self.mean_length).astype(np.int64)
        return n_noise, np.clip(n_spans, 1, np.maximum(np.minimum(n_noise, lengths - n_noise + 1), 1))

    def sizes(self, lengths: np.ndarray) -> np.ndarray:
        n_noise, n_spans = self.counts(lengths)
        if (most := int(n_spans.max())) >= len(self.sentinels):
            raise UserError(
                f"data.length: expected at most {len(self.sentinels) - 1} spans in a text, one less than the tokenizer"
                f" has sentinels, got {most}; lower it"
            )
        return np.stack([lengths - n_noise + n_spans, n_noise + n_spans + 1], axis=1)

    def __call__(self, ids: np.ndarray, random: np.random.Generator) -> tuple[list[int], list[int]]:
        (n_noise,), (n_spans,) = self.counts(np.array([len(ids)]))
        noise = _parts(int(n_noise), int(n_spans), random)
        # Before the first span and after the last one there may be nothing.
        kept = _parts(len(ids) - int(n_noise) + 2, int(n_spans) + 1, random)
        kept[0] -= 1
        source, target, at = list[int](), list[int](), 0
        for sentinel, n_kept, n_gone in zip(self.sentinels, kept, noise, strict=False):
            source += [*ids[at : at + n_kept].tolist(), sentinel]
            target += [sentinel, *ids[at + n_kept : at + n_kept + n_gone].tolist()]
            at += n_kept + n_gone
        return [*source, *ids[at:].tolist()], [*target, self.sentinels[int(n_spans)]]


@dataclass(frozen=True)
class Infiller(Corruptor):
    """Spans of Poisson lengths become one mask token each, and sentences change places; the target is the text.

    A span of length 0 is a mask token where nothing is missing (Lewis et al. 2020, 2.2).
    """

    mask_id: int
    ends: frozenset[int]
    """The ids that end a sentence; none keeps the sentences in order."""
    share: float
    mean_length: float

    @property
    def extra(self) -> int:
        return self.mask_id

    def sizes(self, lengths: np.ndarray) -> np.ndarray:
        return np.stack([lengths, lengths], axis=1)

    def __call__(self, ids: np.ndarray, random: np.random.Generator) -> tuple[list[int], list[int]]:
        return self.masked(self.permuted(ids, random), random), ids.tolist()

    def permuted(self, ids: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """The sentences in random order."""
        stops = [i + 1 for i, token in enumerate(ids[:-1].tolist()) if token in self.ends]
        sentences = np.split(ids, stops)
        return np.concatenate([sentences[i] for i in random.permutation(len(sentences))])

    def masked(self, ids: np.ndarray, random: np.random.Generator) -> list[int]:
        """The ids with mask tokens: never more ids than before."""
        wanted = max(1, round(self.share * len(ids)))
        drawn = random.poisson(self.mean_length, 2 * wanted + 8)
        lengths = drawn[: int((drawn.cumsum() < wanted).sum()) + 1]
        lengths[-1] -= max(0, int(lengths.sum()) - wanted)
        too_many = max(0, len(lengths) - int(lengths.sum()))
        lengths = np.delete(lengths, np.flatnonzero(lengths == 0)[:too_many])
        n_kept = len(ids) - int(lengths.sum())
        # No two spans begin at one place, so that there is an id between them.
        gaps = np.sort(random.choice(n_kept + 1, min(len(lengths), n_kept + 1), replace=False))
        found, at, kept = list[int](), 0, 0
        for gap, length in zip(gaps.tolist(), lengths.tolist(), strict=False):
            found += [*ids[at : at + gap - kept].tolist(), self.mask_id]
            at, kept = at + gap - kept + length, gap
        return [*found, *ids[at:].tolist()]


def _parts(n: int, n_parts: int, random: np.random.Generator) -> list[int]:
    """Draws numbers of at least 1 whose sum is n. All such sequences are equally likely."""
    cuts = np.sort(random.choice(n - 1, n_parts - 1, replace=False)) + 1
    return np.diff([0, *cuts.tolist(), n]).tolist()


# --- with a tokenizer ---------------------------------------------------------------------------------------------


def extended_for(config: Corruption, tokenizer: Tokenizer) -> Tokenizer:
    """A tokenizer that is trained here, with the special tokens of a corruption."""
    if isinstance(config, Spans):
        names = [f"<extra_id_{i}>" for i in range(N_SENTINELS)]
        return with_special(tokenizer, [AddedToken(name, normalized=False) for name in names])
    return with_mask_token(tokenizer)


def corruptor(config: Corruption, tokenizer: Tokenizer) -> Corruptor:
    """The corruption with a tokenizer's special tokens. Raises UserError if it lacks them."""
    if isinstance(config, Spans):
        found = [tokenizer.library.token_to_id(f"<extra_id_{i}>") for i in range(N_SENTINELS)]
        sentinels = tuple(i for i in found if i is not None)
        if not sentinels:
            raise UserError(
                "tokenizer: expected sentinels such as <extra_id_0>, got none; try data.corruption.kind = infilling"
            )
        return SpanCorruptor(sentinels, config.share, config.mean_length)
    names = enumerate(tokenizer.tokens(range(tokenizer.vocab_size)))
    ends = frozenset(i for i, name in names if name.strip("▁#") in ENDS) if config.permute_sentences else frozenset()
    return Infiller(tokenizer.need("mask"), ends, config.share, config.mean_length)
