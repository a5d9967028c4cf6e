"""The examples of a language model: windows of one running text, or rows packed with whole documents."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from hashlib import blake2b
from typing import Any, Protocol, Self

import numpy as np
import torch

from clearhead.brief import amount
from clearhead.data.batches import Batches, DocumentSlice, pack_documents, spans, windows
from clearhead.data.encoded import EncodedText
from clearhead.data.sequences import Sequences
from clearhead.data.sources import read_texts
from clearhead.data.splits import text_splits
from clearhead.errors import UserError
from clearhead.generation import complete
from clearhead.model import Tokens, Transformer
from clearhead.model.loss import IGNORED
from clearhead.randomness import key
from clearhead.recipe.data import Source
from clearhead.recipe.generation import GenerationConfig
from clearhead.tasks.reports import SplitReport, SplitsReport
from clearhead.tasks.task import Batch, HeadLoss, Trained
from clearhead.text.special_tokens import SpecialTokens, template_tokens
from clearhead.text.tokenizers import Tokenizer

PADDING = -1
"""The document number of padding cells."""


class Reading(ABC):
    """A text as numbered examples and batches of them."""

    length: int
    """Largest number of tokens in a row."""
    largest: int
    """The largest token id."""
    chosen: Sequence[int] | None = None
    """The rows that `everything` yields; None for all."""

    @abstractmethod
    def examples(self, *, seed: int, epoch: int) -> np.ndarray:
        """Every example of an epoch once, in random order: a function of (seed, epoch) alone."""

    @abstractmethod
    def batch(self, examples: Sequence[int]) -> Batch:
        """These examples as one batch."""

    @property
    @abstractmethod
    def sizes(self) -> list[int]:
        """The tokens of each row of `everything`, whichever are chosen."""

    @abstractmethod
    def everything(self, size: int) -> Iterator[Batch]:
        """Every chosen token to predict exactly once, `size` rows at a time: for evaluation."""

    def take(self, rows: Sequence[int]) -> Self:
        """The same text, but `everything` yields only these rows."""
        part = copy(self)
        part.chosen = rows
        return part

    @property
    def rows_chosen(self) -> Sequence[int]:
        """The numbers of the rows that `everything` yields."""
        return range(len(self.sizes)) if self.chosen is None else self.chosen


class RowsTask(HeadLoss):
    """A task that learns the rows of a reading by the loss of the network's head."""

    batch_size: int

    @property
    @abstractmethod
    def rows(self) -> Reading:
        """The rows of the training data."""

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        return Batches.of_size(self.rows.examples(seed=seed, epoch=epoch), self.batch_size)

    def collate(self, examples: Sequence[int]) -> Batch:
        return self.rows.batch(examples)


class RunningText(Reading):
    """One long text, cut into windows; an example is the start of a window.

    `begin` replaces the first tokens of each window, so that it begins as a tokenizer's template begins a prompt.
    """

    def __init__(self, text: Sequences, length: int, *, name: str, begin: Sequence[int] = ()) -> None:
        self.ids, self.largest, self.length = text.ids, text.largest, length
        self.begin = torch.tensor(begin[:length], dtype=torch.long)
        if len(self.ids) <= length:
            raise UserError(f"{name}: expected more than {length} tokens, got {len(self.ids)}; lower data.length")
        self.spans = spans(len(self.ids), length)

    def examples(self, *, seed: int, epoch: int) -> np.ndarray:
        return windows(len(self.ids), self.length, seed=seed, epoch=epoch)

    def batch(self, examples: Sequence[int]) -> Batch:
        return self._windows(examples, self.length)

    @property
    def sizes(self) -> list[int]:
        return [stop - start for start, stop in self.spans]

    def everything(self, size: int) -> Iterator[Batch]:
        by_length: dict[int, list[int]] = {}
        for start, stop in (self.spans[i] for i in self.rows_chosen):
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


class PackedRows(Reading):
    """Rows of several texts, `side_by_side`. Long texts are cut into pieces.

    Example epoch * n_rows + row is a row in an epoch, so that what is random depends on its number alone.
    """

    def __init__(self, lengths: np.ndarray | Sequence[int], length: int, *, largest: int, marks: int = 0) -> None:
        """`marks` more tokens are around each piece."""
        self.length, self.largest, self.marks = length, largest, marks
        self.rows = pack_documents(lengths, length, seed=0, epoch=0, marks=marks)

    @abstractmethod
    def row(self, epoch: int, pieces: Sequence[DocumentSlice], number: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """What the network reads of each text of a row, and the label of each cell, or IGNORED."""

    def __len__(self) -> int:
        return len(self.rows)

    def examples(self, *, seed: int, epoch: int) -> np.ndarray:
        return np.random.default_rng(key(seed, "rows", epoch)).permutation(len(self)) + epoch * len(self)

    def batch(self, examples: Sequence[int]) -> Batch:
        numbers = [divmod(example, len(self)) for example in examples]
        rows = [self.row(epoch, self.rows[number], number) for epoch, number in numbers]
        labels = np.concatenate([labels for row in rows for _, labels in row])
        tokens = side_by_side([[ids for ids, _ in row] for row in rows])
        return Batch((tokens,), torch.from_numpy(labels), n_ignored=int((labels == IGNORED).sum()))

    @property
    def sizes(self) -> list[int]:
        return [sum(len(piece) + self.marks for piece in row) for row in self.rows]

    def everything(self, size: int) -> Iterator[Batch]:
        for i in range(0, len(self.rows_chosen), size):
            yield self.batch(self.rows_chosen[i : i + size])


class Documents(PackedRows):
    """Many texts, each with its marks such as bos and eos, whose next tokens are the labels."""

    def __init__(self, documents: Sequences, length: int) -> None:
        super().__init__(np.maximum(documents.lengths - 1, 0), length, largest=documents.largest)
        self.documents = documents

    def row(self, epoch: int, pieces: Sequence[DocumentSlice], number: int) -> list[tuple[np.ndarray, np.ndarray]]:
        texts = [self.documents.read(one.document, one.start, one.stop + 1).astype(np.int64) for one in pieces]
        return [(ids[:-1], ids[1:]) for ids in texts]


def side_by_side(rows: Sequence[Sequence[np.ndarray]]) -> Tokens:
    """Rows of texts, given as ids. Attention stays inside a text, and each counts its positions from 0."""
    width = max(sum(map(len, row)) for row in rows)
    cells = torch.zeros(3, len(rows), width, dtype=torch.long)
    ids, positions, documents = cells
    documents.fill_(PADDING)
    for i, row in enumerate(rows):
        at = 0
        for number, text in enumerate(row):
            here = slice(at, at + len(text))
            ids[i, here] = torch.from_numpy(text)
            positions[i, here] = torch.arange(len(text))
            documents[i, here] = number
            at += len(text)
    valid = documents != PADDING
    return Tokens(ids, valid, valid.flatten().nonzero()[:, 0], positions, documents)


def read_as(text: EncodedText, length: int, tokenizer: Tokenizer, *, name: str) -> Reading:
    """Running text or documents, as the text is. An error names the split that is too short by `name`."""
    if text.is_running:
        return RunningText(text.ids, length, name=name, begin=template_tokens(tokenizer).before)
    return Documents(text.ids, length)


def measured_text(model: Trained, source: Source | None, data: Any, marks: SpecialTokens | None = None) -> EncodedText:
    """The texts of a source as a model reads them; if it is None, those that `data` hold out.

    `marks` replace those that usually surround each.
    """
    documents: Iterable[Iterable[str]]
    if source is not None:
        documents = [[text] for text in read_texts(source)]
        running = len(documents) == 1
    else:
        train, documents = text_splits(data, data.held_out)
        running = train.n_documents == 1
    return EncodedText.of(documents, model.tokenizer, running=running, generation=model.generation, marks=marks)


# --- the report ---------------------------------------------------------------------------------------------------

BLOCK = 1 << 20
"""Ids that are read at once."""


class TextRows(Protocol):
    """Texts as examples."""

    texts: Sequences

    def __len__(self) -> int:
        """The number of examples."""
        ...


def text_report(
    rows: Mapping[str, TextRows], tokenizer: Tokenizer, *, length: int, trained: Mapping[str, int]
) -> SplitsReport:
    """The report on these splits, with `train` among them.

    `length` is the most tokens of a piece of a document, without marks. `trained` counts the tokens that the network
    predicts in an epoch, on average.
    """
    train, splits, unknown = _digests(rows["train"].texts), list[SplitReport](), tokenizer.unk_id
    for name, text, n_examples in ((name, split.texts, len(split)) for name, split in rows.items()):
        digests = train if name == "train" else _digests(text)
        n, n_tokens = len(text), int(text.lengths.sum())
        n_unknown = 0 if unknown is None else count(text, np.array([unknown]))
        size = f"{amount(n, 'documents')}, {amount(n_tokens, 'tokens')} ({n_unknown / max(n_tokens, 1):.2%} unknown)"
        line = f"{name}: {size}; {trained[name]:,} of them to predict in {n_examples:,} examples"
        n_long = int((text.lengths > length).sum())
        n_shared = 0 if name == "train" else int(np.isin(digests, train).sum())
        findings = {
            "n_long": (n_long, f"documents are longer than {length:,} tokens and cut into pieces"),
            "n_duplicates": (n - len(np.unique(digests)), "duplicates, kept"),
            "n_shared": (n_shared, f"({n_shared / n:.1%}) are also in train"),
        }
        counts = {"n_documents": n, "n_tokens": n_tokens, "n_unknown": n_unknown}
        counts |= {"n_examples": n_examples, "n_trained": trained[name]}
        splits.append(SplitReport.of([line], findings, name=name, **counts))
    return SplitsReport(about=(f"vocabulary: {tokenizer.vocab_size:,} tokens",), splits=tuple(splits))


def count(text: Sequences, which: np.ndarray) -> int:
    """How many ids of a text are among these."""
    n = int(text.lengths.sum())
    return sum(int(np.isin(text.ids[at : at + BLOCK], which).sum()) for at in range(0, n, BLOCK))


def predicted(text: Sequences, n: int) -> np.ndarray:
    """n: how often each id of a vocabulary of n is in a text, but not as the first of a document."""
    counts, starts = np.zeros(n, dtype=np.int64), text.offsets[:-1][text.lengths > 0]
    for at in range(0, int(text.lengths.sum()), BLOCK):
        block = text.ids[at : at + BLOCK]
        first = starts[(starts >= at) & (starts < at + BLOCK)] - at
        counts += np.bincount(block, minlength=n) - np.bincount(block[first], minlength=n)
    return counts


def _digests(text: Sequences) -> np.ndarray:
    """A 64-bit hash of each document. Two of a million collide with a probability below one in ten million."""
    lengths = text.lengths.tolist()
    hashes = (blake2b(text.read(i, 0, n).tobytes(), digest_size=8).digest() for i, n in enumerate(lengths))
    return np.fromiter((int.from_bytes(one, "little") for one in hashes), np.uint64, len(lengths))


def complete_text(network: Transformer, tokenizer: Tokenizer, prompt: Sequence[int], config: GenerationConfig) -> str:
    """The text that a decoder writes after these tokens."""
    best = complete(
        network,
        [prompt] if prompt else None,
        config=config,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        pad_id=tokenizer.pad_id or 0,
        scored=False,
    )
    return tokenizer.decode(best[0][0].tokens)
