"""The examples of a language model: windows of one running text, or rows packed with whole documents."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

from clearhead.data.batches import DocumentSlice, pack_documents, spans, windows
from clearhead.data.encoded import EncodedText
from clearhead.data.sequences import Sequences
from clearhead.data.sources import read_texts
from clearhead.data.splits import text_splits
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.randomness import key
from clearhead.recipe.data import Data, HeldOut, Source
from clearhead.tasks.task import Batch, Trained
from clearhead.text.special_tokens import SpecialTokens, template_tokens
from clearhead.text.tokenizers import Tokenizer

IGNORED = -1
"""The document number of padding cells."""


class Reading(ABC):
    """A text as numbered examples and batches of them."""

    length: int
    """Largest number of tokens in a row."""

    largest: int
    """The largest token id."""

    @abstractmethod
    def examples(self, *, seed: int, epoch: int) -> np.ndarray:
        """Every example of an epoch once, in random order: a function of (seed, epoch) alone."""

    @abstractmethod
    def batch(self, examples: Sequence[int]) -> Batch:
        """These examples as one batch."""

    @abstractmethod
    def sizes(self) -> list[int]:
        """The tokens to predict in each row of `everything`."""

    @abstractmethod
    def everything(self, size: int, rows: Sequence[int] | None = None) -> Iterator[Batch]:
        """Every token to predict exactly once, `size` rows at a time: for evaluation. With `rows`, only these rows."""


class RunningText(Reading):
    """One long text, cut into windows; an example is the start of a window.

    `begin` replaces the first tokens of each window, so that it begins as a tokenizer's template begins a prompt.
    """

    def __init__(self, text: Sequences, length: int, *, name: str, begin: Sequence[int] = ()) -> None:
        self.ids, self.largest, self.length = text.ids, text.largest, length
        self.begin = torch.tensor(begin[:length], dtype=torch.long)
        if len(self.ids) <= length:
            raise UserError(f"{name}: expected more than {length} tokens, got {len(self.ids)}; lower data.length")

    def examples(self, *, seed: int, epoch: int) -> np.ndarray:
        return windows(len(self.ids), self.length, seed=seed, epoch=epoch)

    def batch(self, examples: Sequence[int]) -> Batch:
        return self._windows(examples, self.length)

    def sizes(self) -> list[int]:
        return [stop - start for start, stop in spans(len(self.ids), self.length)]

    def everything(self, size: int, rows: Sequence[int] | None = None) -> Iterator[Batch]:
        by_length: dict[int, list[int]] = {}
        every = [*spans(len(self.ids), self.length)]
        for start, stop in every if rows is None else [every[i] for i in rows]:
            by_length.setdefault(stop - start, []).append(start)
        for length, starts in by_length.items():
            for i in range(0, len(starts), size):
                yield self._windows(starts[i : i + size], length)

    def _windows(self, starts: Sequence[int], length: int) -> Batch:
        rows = torch.from_numpy(np.stack([self.ids[at : at + length + 1] for at in starts]).astype(np.int64))
        inputs = rows[:, :-1].clone()
        begin = self.begin[:length]
        inputs[:, : len(begin)] = begin
        return Batch((Tokens(inputs),), rows[:, 1:].flatten())


class Documents(Reading):
    """Many texts, each with its marks such as bos and eos; an example is a row of several texts, `side_by_side`."""

    def __init__(self, documents: Sequences, length: int) -> None:
        self.documents, self.largest, self.length = documents, documents.largest, length
        self.rows = pack_documents(np.maximum(documents.lengths - 1, 0), length, seed=0, epoch=0)

    def examples(self, *, seed: int, epoch: int) -> np.ndarray:
        random = np.random.default_rng(key(seed, "rows", epoch))
        return random.permutation(len(self.rows))

    def batch(self, examples: Sequence[int]) -> Batch:
        rows = [self.rows[i] for i in examples]
        labels = [self._tokens(piece, 1) for row in rows for piece in row]
        tokens = side_by_side([[self._tokens(piece, 0) for piece in row] for row in rows])
        return Batch((tokens,), torch.from_numpy(np.concatenate(labels)))

    def sizes(self) -> list[int]:
        return [sum(piece.stop - piece.start for piece in row) for row in self.rows]

    def everything(self, size: int, rows: Sequence[int] | None = None) -> Iterator[Batch]:
        chosen = range(len(self.rows)) if rows is None else rows
        for i in range(0, len(chosen), size):
            yield self.batch(chosen[i : i + size])

    def _tokens(self, piece: DocumentSlice, shift: int) -> np.ndarray:
        return self.documents.read(piece.document, piece.start + shift, piece.stop + shift).astype(np.int64)


def side_by_side(rows: Sequence[Sequence[np.ndarray]]) -> Tokens:
    """Rows of texts, given as ids. Attention stays inside a text, and each counts its positions from 0."""
    width = max(sum(map(len, row)) for row in rows)
    cells = torch.zeros(3, len(rows), width, dtype=torch.long)
    ids, positions, documents = cells
    documents.fill_(IGNORED)
    for i, row in enumerate(rows):
        at = 0
        for number, text in enumerate(row):
            here = slice(at, at + len(text))
            ids[i, here] = torch.from_numpy(text)
            positions[i, here] = torch.arange(len(text))
            documents[i, here] = number
            at += len(text)
    valid = documents != IGNORED
    return Tokens(ids, valid, valid.flatten().nonzero()[:, 0], positions, documents)


def read_as(text: EncodedText, length: int, tokenizer: Tokenizer, *, name: str) -> Reading:
    """Running text or documents, as the text is. An error names the split that is too short by `name`."""
    if text.is_running:
        return RunningText(text.ids, length, name=name, begin=template_tokens(tokenizer).before)
    return Documents(text.ids, length)


def bare_text(model: Trained, source: Source | None, data: Data, held_out: HeldOut) -> Sequences:
    """The ids of a source's texts without marks; if it is None, of the texts that `data` hold out."""
    documents: Iterable[Iterable[str]]
    if source is not None:
        documents = [[text] for text in read_texts(source)]
        running = len(documents) == 1
    else:
        train, documents = text_splits(data, held_out)
        running = train.n_documents == 1
    return EncodedText.of(
        documents, model.tokenizer, running=running, generation=model.generation, marks=SpecialTokens()
    ).ids
