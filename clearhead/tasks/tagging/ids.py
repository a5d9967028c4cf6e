"""Words as the ids that a tagger reads, and the cell of each word's first piece. Imports no torch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from clearhead.brief import brief
from clearhead.text.special_tokens import SpecialTokens, template_tokens
from clearhead.text.tokenizers import Tokenizer

Words = Sequence[str]


@dataclass(frozen=True)
class Part:
    """Consecutive words of a sentence, which the network reads together."""

    sentence: int
    """The number of the sentence."""
    start: int
    """Its first word there."""
    ids: list[int]
    cells: list[int]
    """Where in `ids` the first piece of each word is."""


@dataclass(frozen=True)
class WordIds:
    """Sentences as ids: one part each, or several if they are longer than the limit."""

    __repr__ = brief

    parts: list[Part]
    n_sentences: int
    n_pieces: int
    """Pieces of all words, without marks."""
    n_cut: int
    """Words with more pieces than fit, of which only the first ones are read."""

    @classmethod
    def of(cls, sentences: Sequence[Words], tokenizer: Tokenizer, limit: int) -> Self:
        """Encodes sentences, whose words are joined by spaces, with the marks of the tokenizer's template.

        Each part has at most `limit` ids. A sentence of more is split between words.
        """
        marks, parts, n_pieces, n_cut = template_tokens(tokenizer), list[Part](), 0, 0
        room = max(1, limit - len(marks))
        for i, words in enumerate(sentences):
            pieces = pieces_of(words, tokenizer)
            n_pieces += sum(len(piece.ids) for piece in pieces)
            n_cut += sum(len(piece.ids) > room for piece in pieces)
            parts += _parts(i, [piece.cut(room) for piece in pieces], marks, room)
        return cls(parts, len(sentences), n_pieces, n_cut)

    def take(self, rows: Sequence[int]) -> Self:
        """The sentences with these numbers. What was counted in all of them stays."""
        new = {row: i for i, row in enumerate(rows)}
        parts = [replace(part, sentence=new[part.sentence]) for part in self.parts if part.sentence in new]
        return replace(self, parts=parts, n_sentences=len(rows))

    @property
    def lengths(self) -> list[int]:
        """The ids of each part."""
        return [len(part.ids) for part in self.parts]

    @property
    def sizes(self) -> list[int]:
        """The ids of each sentence."""
        sizes = [0] * self.n_sentences
        for part in self.parts:
            sizes[part.sentence] += len(part.ids)
        return sizes

    @property
    def n_split(self) -> int:
        """Sentences in several parts."""
        return len({part.sentence for part in self.parts if part.start})


def _parts(sentence: int, pieces: Sequence["Pieces"], marks: SpecialTokens, room: int) -> Iterator[Part]:
    start, ids, cells = 0, list[int](), list[int]()
    for i, piece in enumerate(pieces):
        if len(ids) + len(piece.ids) > room:
            yield Part(sentence, start, marks.around(ids), cells)
            start, ids, cells = i, list[int](), list[int]()
        cells.append(len(marks.before) + len(ids) + piece.n_spaces)
        ids += piece.ids
    if ids:
        yield Part(sentence, start, marks.around(ids), cells)


@dataclass(frozen=True, slots=True)
class Pieces:
    """The ids of a word, with those of the space before it if it has any of its own."""

    ids: list[int]
    n_spaces: int = 0

    def cut(self, room: int) -> "Pieces":
        """The pieces, or if they exceed `room` its first ids without the space."""
        return self if len(self.ids) <= room else Pieces(self.ids[self.n_spaces :][:room])


def pieces_of(words: Words, tokenizer: Tokenizer) -> list[Pieces]:
    """The pieces of each word, at least one: the unknown token for a word that the tokenizer removes.

    They are those of the words with spaces between them. A piece of several words belongs to the first of them.
    """
    text = " ".join(words)
    ends: list[int] = []
    for word in words:
        ends.append(len(word) + (ends[-1] + 1 if ends else 0))
    found: list[list[int]] = [[] for _ in words]
    spaces, n_spaces, at = list[int](), [0] * len(words), 0
    for token, (start, end) in zip(tokenizer.encode(text), tokenizer.offsets(text), strict=True):
        if not text[start:end].strip():
            spaces.append(token)
            continue
        while at < len(ends) - 1 and ends[at] <= start:
            at += 1
        if not found[at]:
            n_spaces[at], found[at] = len(spaces), spaces
        found[at].append(token)
        spaces = list[int]()
    return [Pieces(ids, n) if ids else Pieces([tokenizer.unk_id or 0]) for ids, n in zip(found, n_spaces, strict=True)]
