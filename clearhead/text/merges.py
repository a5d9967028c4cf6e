"""The merges by which byte-pair encoding builds the pieces of a word. Imports no torch.

The library returns only the final pieces, so the merges are replayed from the model's ranks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from clearhead.errors import UserError


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge of two adjacent pieces. Rank 0 was learned first."""

    left: str
    right: str
    rank: int


@dataclass(frozen=True, slots=True)
class BytePairModel:
    """A byte-pair model as read from its JSON."""

    vocabulary: Mapping[str, int]
    merges: Mapping[tuple[str, str], int]
    prefix: str
    suffix: str
    unknown: str | None
    bytes_of_unknown: bool

    @classmethod
    def of(cls, model: Mapping[str, object]) -> "BytePairModel":
        """Reads a model. Raises UserError if it is not a byte-pair model."""
        merges, vocabulary = model.get("merges"), model.get("vocab")
        if model.get("type") != "BPE" or not isinstance(merges, list) or not isinstance(vocabulary, dict):
            raise UserError(f"merges: expected a byte-pair tokenizer, got {model.get('type')}; try byte_bpe or bpe")
        unknown = model.get("unk_token")
        return cls(
            vocabulary=vocabulary,
            merges={pair_of(merge): rank for rank, merge in enumerate(merges)},
            prefix=str(model.get("continuing_subword_prefix") or ""),
            suffix=str(model.get("end_of_word_suffix") or ""),
            unknown=unknown if isinstance(unknown, str) else None,
            bytes_of_unknown=bool(model.get("byte_fallback")),
        )

    def start(self, word: str) -> list[str]:
        """A word's characters as the model first sees them."""
        pieces: list[str] = []
        for position, character in enumerate(word):
            piece = (self.prefix if position else "") + character
            piece += self.suffix if position == len(word) - 1 else ""
            if piece in self.vocabulary:
                pieces.append(piece)
            elif self.bytes_of_unknown and all(f"<0x{b:02X}>" in self.vocabulary for b in character.encode()):
                pieces += [f"<0x{b:02X}>" for b in character.encode()]
            elif self.unknown is not None:
                pieces.append(self.unknown)
        return pieces

    def replay(self, word: str) -> list[tuple[Merge, list[str]]]:
        """The merges of a word (lowest rank first, leftmost among equals), each with the pieces after it."""
        pieces, history = self.start(word), list[tuple[Merge, list[str]]]()
        while True:
            ranked = [(self.merges.get(pair), at) for at, pair in enumerate(pairwise(pieces))]
            known = [(rank, at) for rank, at in ranked if rank is not None]
            if not known:
                return history
            rank, at = min(known)
            merge = Merge(pieces[at], pieces[at + 1], rank)
            pieces = [*pieces[:at], merge.left + merge.right.removeprefix(self.prefix), *pieces[at + 2 :]]
            history.append((merge, pieces))


def pair_of(merge: Any) -> tuple[str, str]:
    """The two pieces of a merge, which tokenizer.json writes as one text or as two."""
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return str(left), str(right)
