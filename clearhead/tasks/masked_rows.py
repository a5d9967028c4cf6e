"""Texts in rows with masks: the examples of a masked language model, a function of (seed, epoch, row)."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from clearhead.data.batches import pack_documents
from clearhead.data.masking import Masking
from clearhead.data.sequences import Sequences
from clearhead.model.loss import IGNORED
from clearhead.randomness import key
from clearhead.tasks.reading import side_by_side
from clearhead.tasks.task import Batch
from clearhead.text.special_tokens import SpecialTokens


class MaskedRows:
    """Rows of several texts, each with marks around it. Long texts are cut into pieces.

    Example epoch * n_rows + row is a row in an epoch, so its masks depend on its number and a seed alone.
    """

    def __init__(
        self, texts: Sequences, length: int, *, marks: SpecialTokens, masking: Masking, seed: int | str
    ) -> None:
        self.texts, self.marks, self.masking, self.seed = texts, marks, masking, seed
        self.rows = pack_documents(texts.lengths, length, seed=0, epoch=0, marks=len(marks))

    def __len__(self) -> int:
        return len(self.rows)

    def examples(self, *, seed: int, epoch: int) -> np.ndarray:
        """Every row of an epoch once, in random order: a function of (seed, epoch) alone."""
        random = np.random.default_rng(key(seed, "rows", epoch))
        return random.permutation(len(self)) + epoch * len(self)

    def batch(self, examples: Sequence[int]) -> Batch:
        """These examples as one batch, with the label IGNORED where no token is chosen."""
        pairs = [self._row(*divmod(example, len(self))) for example in examples]
        labels = np.concatenate([label for _, labels in pairs for label in labels])
        tokens = side_by_side([read for read, _ in pairs])
        return Batch((tokens,), torch.from_numpy(labels), n_ignored=int((labels == IGNORED).sum()))

    def sizes(self) -> list[int]:
        """The tokens of each row, with marks."""
        return [sum(piece.stop - piece.start + len(self.marks) for piece in row) for row in self.rows]

    def everything(self, size: int, rows: Sequence[int] | None = None) -> Iterator[Batch]:
        """Every row once, or each of `rows`, `size` at a time, with the masks of the first epoch: for evaluation."""
        chosen = range(len(self)) if rows is None else rows
        for i in range(0, len(chosen), size):
            yield self.batch(chosen[i : i + size])

    def _row(self, epoch: int, row: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The texts of a row as the network reads them, and their labels."""
        random = np.random.default_rng(key(self.seed, "masks", epoch, row))
        before, after = np.array(self.marks.before, np.int64), np.array(self.marks.after, np.int64)
        texts = [self.texts.read(piece.document, piece.start, piece.stop) for piece in self.rows[row]]
        pieces = [np.concatenate([before, text, after]) for text in texts]
        ends = np.cumsum([len(piece) for piece in pieces])[:-1]
        whole = np.concatenate(pieces)
        read, chosen = self.masking(whole, random)
        labels = np.where(chosen, whole, IGNORED)
        return np.split(read, ends), np.split(labels, ends)
