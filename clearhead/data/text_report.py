"""The report on texts before pretraining: sizes, lengths, unknown tokens, duplicates, overlaps. Imports no torch."""

from hashlib import blake2b

import numpy as np

from clearhead.config import Config
from clearhead.data.sequences import Sequences

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
