"""How a language model reads its text: running text in windows, or whole documents packed into rows."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from clearhead.data.batches import Piece, pack_documents, spans, windows
from clearhead.data.marks import Marks, document_marks, template_marks
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.randomness import key
from clearhead.recipe.generation import GenerationConfig
from clearhead.tasks.task import Batch

IGNORED = -1
"""The document number of cells that hold no token."""


class Reading(ABC):
    """A text as examples, which are numbers, and as batches of them."""

    length: int
    """Tokens a row at most."""

    @abstractmethod
    def sequences(self) -> Sequence[np.ndarray]:
        """All its token ids."""

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
    """One long text, cut in windows; an example is where its window starts.

    `begin` takes the place of a window's first tokens: it then reads as a prompt does that a tokenizer marks.
    """

    def __init__(self, ids: Sequence[int], length: int, *, name: str, begin: Sequence[int] = ()) -> None:
        self.ids, self.length, self.begin = np.array(ids), length, torch.tensor(begin[:length], dtype=torch.long)
        if len(ids) <= length:
            raise UserError(f"{name}: expected more than {length} tokens, got {len(ids)}; lower data.length")

    def sequences(self) -> Sequence[np.ndarray]:
        return [self.ids]

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
        inputs = rows[:, :-1].clone()
        begin = self.begin[:length]
        inputs[:, : len(begin)] = begin
        return Batch((Tokens(inputs),), rows[:, 1:].flatten())


class Documents(Reading):
    """Many texts, each with its marks, such as bos and eos; an example is a row that holds several of them.

    Attention stays inside a document, and each counts its positions from 0.
    """

    def __init__(self, documents: Sequence[Sequence[int]], length: int, marks: Marks) -> None:
        self.ids = [np.array(marks.around(ids)) for ids in documents]
        self.length = length
        self.rows = pack_documents([len(ids) - 1 for ids in self.ids], length, seed=0, epoch=0)

    def sequences(self) -> Sequence[np.ndarray]:
        return self.ids

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


def read_as(
    texts: Sequence[str],
    length: int,
    tokenizer: Tokenizer,
    *,
    generation: GenerationConfig,
    running: bool,
    name: str,
) -> Reading:
    """The texts as one that runs on, or as documents; `name` says in an error which data are too short."""
    if running:
        begin = template_marks(tokenizer).before
        return RunningText(tokenizer.encode("\n".join(texts)), length, name=name, begin=begin)
    return Documents(tokenizer.encode_batch(texts), length, document_marks(tokenizer, generation))
