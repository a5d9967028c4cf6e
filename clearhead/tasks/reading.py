"""The examples of a language model: windows of one running text, or rows packed with whole documents."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

from clearhead.config import Config
from clearhead.data.batches import DocumentSlice, pack_documents, spans, windows
from clearhead.data.encoded import EncodedText
from clearhead.data.sequences import Sequences
from clearhead.data.sources import read_texts
from clearhead.data.splits import text_splits
from clearhead.errors import UserError
from clearhead.generation import complete
from clearhead.model import Tokens, Transformer
from clearhead.randomness import key
from clearhead.recipe.data import Source
from clearhead.recipe.generation import GenerationConfig
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


class TextSplitReport(Config):
    """One split."""

    name: str
    n_documents: int
    n_long: int
    """Documents that are cut into pieces."""
    n_examples: int
    n_tokens: int
    n_unknown: int
    n_trained: int
    """Tokens that the network predicts in an epoch, on average."""
    n_duplicates: int
    """Documents that are equal to an earlier one."""
    n_shared: int
    """Documents that are also in training."""


class TextReport(Config):
    """All counts. `lines()` is for people, `model_dump()` for programs."""

    vocab_size: int
    length: int
    """Most tokens of a piece of a document, without marks."""
    splits: tuple[TextSplitReport, ...]

    def lines(self) -> list[str]:
        """The report as plain text, one finding a line."""
        lines = [f"vocabulary: {self.vocab_size:,} tokens"]
        for split in self.splits:
            unknown = split.n_unknown / max(split.n_tokens, 1)
            size = f"{split.n_documents:,} documents, {split.n_tokens:,} tokens ({unknown:.2%} unknown)"
            lines.append(
                f"{split.name}: {size}; {split.n_trained:,} of them to predict in {split.n_examples:,} examples"
            )
            if split.n_long:
                lines.append(f"  {split.n_long:,} documents are longer than {self.length:,} tokens and cut into pieces")
            if split.n_duplicates:
                lines.append(f"  {split.n_duplicates:,} duplicates, kept")
            if split.n_shared:
                lines.append(f"  {split.n_shared / split.n_documents:.1%} of the documents are also in train")
        return lines


def text_report(
    texts: dict[str, Sequences],
    *,
    vocab_size: int,
    length: int,
    unknown: int | None,
    examples: dict[str, int],
    trained: dict[str, int],
) -> TextReport:
    """The report on these splits, of which `train` is one; `examples` and `trained` are counts of the task."""
    train, splits = _digests(texts["train"]), list[TextSplitReport]()
    for name, text in texts.items():
        digests = train if name == "train" else _digests(text)
        splits.append(
            TextSplitReport(
                name=name,
                n_documents=len(text),
                n_long=int((text.lengths > length).sum()),
                n_examples=examples[name],
                n_tokens=int(text.lengths.sum()),
                n_unknown=0 if unknown is None else count(text, np.array([unknown])),
                n_trained=trained[name],
                n_duplicates=len(digests) - len(np.unique(digests)),
                n_shared=0 if name == "train" else int(np.isin(digests, train).sum()),
            )
        )
    return TextReport(vocab_size=vocab_size, length=length, splits=tuple(splits))


def count(text: Sequences, which: np.ndarray) -> int:
    """How many ids of a text are among these."""
    n = int(text.lengths.sum())
    return sum(int(np.isin(text.ids[at : at + BLOCK], which).sum()) for at in range(0, n, BLOCK))


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
