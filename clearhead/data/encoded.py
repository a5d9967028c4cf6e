"""Texts as token ids, encoded as they are read. Imports no torch."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from clearhead.brief import brief
from clearhead.data.sequences import Sequences, Shelf, Writer, lengths_of
from clearhead.data.sources import Pairs
from clearhead.recipe.generation import GenerationConfig
from clearhead.text.special_tokens import SpecialTokens, document_tokens
from clearhead.text.tokenizers import Tokenizer

PIECE = 1 << 16
"""Number of characters encoded at once."""
BEGINNING = 128
"""Number of characters of a text kept as text."""


# --- pairs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EncodedPairs:
    """Sentence pairs as ids without marks such as bos and eos, and as text for the splits that need it later."""

    __repr__ = brief

    text: Pairs
    source: Sequence[Sequence[int]]
    target: Sequence[Sequence[int]]

    @classmethod
    def of(cls, text: Pairs, tokenizer: Tokenizer) -> Self:
        """Encodes each side of the pairs in its own language."""
        return cls(text, tokenizer.encode_batch(text.source), tokenizer.encode_batch(text.target, target=True))

    @property
    def sizes(self) -> list[int]:
        """The tokens of both sides of each pair."""
        return (lengths_of(self.source) + lengths_of(self.target)).tolist()

    def take(self, rows: Sequence[int]) -> Self:
        """The pairs with these numbers."""
        text = Pairs([self.text.source[i] for i in rows], [self.text.target[i] for i in rows])
        return type(self)(text, [self.source[i] for i in rows], [self.target[i] for i in rows])


# --- text ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EncodedText:
    """One running text, or documents with their marks, as ids."""

    ids: Sequences
    is_running: bool
    n_bytes: int
    beginning: str
    """The first characters of the first document."""

    @classmethod
    def of(
        cls,
        documents: Iterable[Iterable[str]],
        tokenizer: Tokenizer,
        *,
        running: bool,
        generation: GenerationConfig,
        marks: SpecialTokens | None = None,
    ) -> Self:
        """Encodes documents, each given in pieces, into memory. `marks` replace those that usually surround each."""
        shelf = Shelf()
        seen = encode_text(
            documents,
            tokenizer,
            shelf.writer("text", tokenizer.vocab_size),
            marks=None if running else document_tokens(tokenizer, generation) if marks is None else marks,
        )
        return cls(shelf.in_memory()["text"], running, seen.n_bytes, seen.beginning)


@dataclass
class Seen:
    """Statistics of the text encoded so far."""

    n_bytes: int = 0
    n_documents: int = 0
    beginning: str = ""

    def note(self, part: "Passage") -> None:
        """Adds the next passage."""
        self.n_bytes += len(part.text.encode("utf-8", "surrogatepass"))
        if not self.n_documents:
            self.beginning += part.text[: BEGINNING - len(self.beginning)]
        self.n_documents += part.is_last


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a document that is encoded at once."""

    text: str
    is_first: bool
    is_last: bool


def encode_text(
    documents: Iterable[Iterable[str]], tokenizer: Tokenizer, writer: Writer, *, marks: SpecialTokens | None
) -> Seen:
    """Writes the ids of documents with their marks. Without marks, joins them with line ends into one text."""
    seen, joins = Seen(), joins_at_spaces(tokenizer)
    texts, around = ([running(documents)], SpecialTokens()) if marks is None else (documents, marks)
    for block in _blocks(_parts(texts)):
        for part in block:
            seen.note(part)
        encoded = tokenizer.encode_batch([continued(part.text, joins and not part.is_first) for part in block])
        # Only a block's first part can continue a document, since a part that is not its document's last ends a block.
        writer.add(
            [
                [*(around.before if part.is_first else ()), *ids, *(around.after if part.is_last else ())]
                for part, ids in zip(block, encoded, strict=True)
            ],
            continued=not block[0].is_first,
        )
    return seen


def running(documents: Iterable[Iterable[str]]) -> Iterator[str]:
    """The documents as one text, joined with line ends."""
    for i, document in enumerate(documents):
        if i:
            yield "\n"
        yield from document


def pieces(text: Iterable[str]) -> Iterator[str]:
    """The same text in pieces of at most PIECE characters.

    Cuts fall where tokenizers begin a token: before a space between two letters. If there is no such space for long,
    as in Chinese, the cut falls after a line end or anywhere, and a token there may differ from the whole text's.
    """
    held, start = "", 0
    for more in text:
        held += more
        while len(held) - start > PIECE:
            stop = _cut(held, start, start + PIECE)
            yield held[start:stop]
            start = stop
        held, start = held[start:], 0
    if held:
        yield held


def continued(text: str, joins: bool) -> str:
    """Drops the leading space of a continued piece if the tokenizer adds it again (`joins_at_spaces`)."""
    return text.removeprefix(" ") if joins else text


def joins_at_spaces(tokenizer: Tokenizer) -> bool:
    """Returns True if two words give the same ids apart as in one text with a space between them."""
    return tokenizer.encode("a b") == tokenizer.encode("a") + tokenizer.encode("b")


def _cut(text: str, start: int, stop: int) -> int:
    at = stop
    while (at := text.rfind(" ", (start + stop) // 2, at)) >= 0:
        if text[at - 1].isalpha() and text[at + 1].isalpha():
            return at
    return text.rfind("\n", (start + stop) // 2, stop) + 1 or stop


def _parts(texts: Iterable[Iterable[str]]) -> Iterator[Passage]:
    for text in texts:
        rest, is_first = pieces(text), True
        piece: str | None = next(rest, "")
        while piece is not None:
            following = next(rest, None)
            yield Passage(piece, is_first, following is None)
            piece, is_first = following, False


def _blocks(parts: Iterable[Passage]) -> Iterator[list[Passage]]:
    block, n_characters = list[Passage](), 0
    for part in parts:
        block.append(part)
        n_characters += len(part.text)
        if not part.is_last or n_characters >= PIECE:
            yield block
            block, n_characters = list[Passage](), 0
    if block:
        yield block
