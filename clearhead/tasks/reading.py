"""How a language model reads its text: running text in windows, or whole documents packed into rows."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from clearhead.data.batches import Piece, pack_documents, spans, windows
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.randomness import key
from clearhead.tasks.task import Batch

IGNORED = -1
"""The document number of cells that hold no token."""


class Reading(ABC):
    """A text as examples, which are numbers, and as batches of them."""

    length: int
    """Tokens a row at most."""

    @abstractmethod
    def examples(self, *, seed: int, epoch: int) -> list[int]:
        """Every example of an epoch once, in random order: a function of (seed, epoch) alone."""

    @abstractmethod
    def batch(self, examples: Sequence[int]) -> Batch:
        """These examples as one batch."""

    @abstractmethod
    def everything(self, size: int) -> Iterator[Batch]:
        """Every token to predict exactly once, `size` rows at a time: for evaluation."""


class RunningText(Reading):
    """One long text, cut in windows; an example is where its window starts."""

    def __init__(self, ids: Sequence[int], length: int, *, name: str) -> None:
        self.ids, self.length = np.array(ids), length
        if len(ids) <= length:
            raise UserError(f"{name}: expected more than {length} tokens, got {len(ids)}; lower data.length")

    def examples(self, *, seed: int, epoch: int) -> list[int]:
        return windows(len(self.ids), self.length, seed=seed, epoch=epoch).tolist()

    def batch(self, examples: Sequence[int]) -> Batch:
        return self._windows(examples, self.length)

    def everything(self, size: int) -> Iterator[Batch]:
        by_length: dict[int, list[int]] = {}
        for start, stop in spans(len(self.ids), self.length):
            by_length.setdefault(stop - start, []).append(start)
        for length, starts in by_length.items():
            for i in range(0, len(starts), size):
                yield self._windows(starts[i : i + size], length)

    def _windows(self, starts: Sequence[int], length: int) -> Batch:
        rows = torch.from_numpy(self.ids[np.asarray(starts)[:, None] + np.arange(length + 1)])
        return Batch((Tokens(rows[:, :-1].contiguous()),), rows[:, 1:].flatten())


class Documents(Reading):
    """Many texts, each begun with bos and ended with eos; an example is a row that holds several of them.

    Attention stays inside a document, and each counts its positions from 0.
    """

    def __init__(self, documents: Sequence[Sequence[int]], length: int, tokenizer: Tokenizer) -> None:
        bos, eos = tokenizer.need("bos"), tokenizer.need("eos")
        self.ids = [np.array([bos, *ids, eos]) for ids in documents]
        self.length = length
        self.rows = pack_documents([len(ids) - 1 for ids in self.ids], length, seed=0, epoch=0)

    def examples(self, *, seed: int, epoch: int) -> list[int]:
        random = np.random.default_rng(key(seed, "rows", epoch))
        return random.permutation(len(self.rows)).tolist()

    def batch(self, examples: Sequence[int]) -> Batch:
        rows = [self.rows[i] for i in examples]
        width = max(sum(map(len, row)) for row in rows)
        cells = torch.zeros(3, len(rows), width, dtype=torch.long)
        ids, positions, documents = cells
        documents.fill_(IGNORED)
        labels: list[np.ndarray] = []
        for i, row in enumerate(rows):
            at = 0
            for number, piece in enumerate(row):
                here = slice(at, at + len(piece))
                ids[i, here] = torch.from_numpy(self._tokens(piece, 0))
                positions[i, here] = torch.arange(len(piece))
                documents[i, here] = number
                labels.append(self._tokens(piece, 1))
                at += len(piece)
        valid = documents != IGNORED
        tokens = Tokens(ids, valid, valid.flatten().nonzero()[:, 0], positions, documents)
        return Batch((tokens,), torch.from_numpy(np.concatenate(labels)))

    def everything(self, size: int) -> Iterator[Batch]:
        for i in range(0, len(self.rows), size):
            yield self.batch(range(i, min(i + size, len(self.rows))))

    def _tokens(self, piece: Piece, shift: int) -> np.ndarray:
        return self.ids[piece.document][piece.start + shift : piece.stop + shift]


def read_as(texts: Sequence[str], length: int, tokenizer: Tokenizer, *, running: bool, name: str) -> Reading:
    """The texts as one that runs on, or as documents; `name` says in an error which data are too short."""
    if running:
        return RunningText(tokenizer.encode("\n".join(texts)), length, name=name)
    return Documents(tokenizer.encode_batch(texts), length, tokenizer)
