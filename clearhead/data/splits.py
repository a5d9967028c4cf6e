"""The splits of a recipe's data: training, validation and test, what is held out, and a fingerprint of each.

A split of files is read again at each iteration and never held in memory as a whole. Imports no torch.
"""

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import JsonValue

from clearhead.data.encoded import running
from clearhead.data.sources import Stream, documents_of, pairs_of, tagged
from clearhead.errors import UserError
from clearhead.randomness import key
from clearhead.recipe.data import SPLITS, Data, HeldOut, HubDataset, Source, TextFiles, share_of

Row = tuple[str, ...]


def pair_splits(data: Data, held_out: HeldOut, *, prefix: str = "") -> dict[str, Stream[Row]]:
    """The splits of sentence pairs. Without a source for validation, holds out some training pairs for it.

    `prefix` is put before each source that is not empty. Raises UserError if there are too few pairs to hold some out.
    """
    splits = {split: pairs_of(source) for split, source in data.sources.items()}
    if "valid" not in splits:
        splits |= _held_out(splits["train"], held_out)
    ordered = {split: splits[split] for split in SPLITS if split in splits}
    return {split: _tagged(prefix, rows) for split, rows in ordered.items()} if prefix else ordered


def _tagged(tag: str, rows: Stream[Row]) -> Stream[Row]:
    return Stream(lambda: (tagged(tag, row) for row in rows))


def _held_out(rows: Stream[Row], held_out: HeldOut) -> dict[str, Stream[Row]]:
    """Training and validation. Holds out the pairs whose sources have the lowest hashes: a share, or a number but at
    most a fifth.
    """
    n_rows = 0
    wanted = held_out if isinstance(held_out, int) else max(1, round(held_out * sum(1 for _ in rows)))

    def ranked() -> Iterator[tuple[int, int, str]]:
        nonlocal n_rows
        for i, row in enumerate(rows):
            n_rows += 1
            yield key("held out", row[0]), i, row[0]

    lowest = heapq.nsmallest(wanted, ranked())
    if n_rows < 10:
        raise UserError(f"data.train: expected at least 10 pairs to hold some out, got {n_rows}; give data.valid")
    lowest = lowest[: n_rows // 5] if isinstance(held_out, int) else lowest
    out = {i for _, i, _ in lowest}
    # Every pair of a held-out source leaves training, so that no source is in both.
    sources = {source for _, _, source in lowest}
    return {
        "train": Stream(lambda: (row for row in rows if row[0] not in sources)),
        "valid": Stream(lambda: (row for i, row in enumerate(rows) if i in out)),
    }


@dataclass(frozen=True)
class TextSplit:
    """Documents, each as the pieces it is read in."""

    documents: Stream[Iterable[str]]
    n_documents: int

    def __iter__(self) -> Iterator[Iterable[str]]:
        return iter(self.documents)


def text_splits(data: Data, held_out: HeldOut) -> tuple[TextSplit, TextSplit]:
    """Training and validation documents. Without a source for validation, holds out the last ones.

    A single document is running text, and its last characters are held out. Raises UserError if nothing is left.
    """
    sources = data.sources
    train = _documents(sources["train"])
    if "valid" in sources:
        return train, _documents(sources["valid"])
    if train.n_documents == 1:
        cut = _kept(sum(map(len, _only(train))), held_out, "characters")
        return _of_one(lambda: _between(_only(train), 0, cut)), _of_one(lambda: _between(_only(train), cut, None))
    cut = min(_kept(train.n_documents, held_out, "documents"), train.n_documents - 1)
    return (
        TextSplit(Stream(lambda: islice(train, cut)), cut),
        TextSplit(Stream(lambda: islice(train, cut, None)), train.n_documents - cut),
    )


def _kept(n: int, held_out: HeldOut, what: str) -> int:
    """What stays of n for training."""
    share = share_of(held_out, n, what)
    return int(n * (1 - share)) if isinstance(held_out, float) else n - held_out


def _documents(source: Source) -> TextSplit:
    read = documents_of(source)
    if isinstance(source, TextFiles) and source.documents == "file":
        return _of_one(lambda: running(read))
    documents = Stream(lambda: (document for document in read if any(text.strip() for text in document)))
    n_documents = sum(1 for _ in documents)
    if not n_documents:
        raise UserError(f"data: expected text in {source.kind} source, got none; give another file")
    return TextSplit(documents, n_documents)


def _of_one(begin: Callable[[], Iterator[str]]) -> TextSplit:
    return TextSplit(Stream(lambda: iter([begin()])), 1)


def _only(text: TextSplit) -> Iterator[str]:
    """The pieces of the only document."""
    return chain.from_iterable(text)


def _between(pieces: Iterable[str], start: int, stop: int | None) -> Iterator[str]:
    """Characters [start, stop) of a text."""
    at = 0
    for piece in pieces:
        if stop is not None and at >= stop:
            return
        if at + len(piece) > start:
            yield piece[max(0, start - at) : None if stop is None else stop - at]
        at += len(piece)


def fingerprint(*columns: Iterable[Iterable[str]]) -> str:
    """SHA-256 of the texts in order. Each text is an iterable of pieces."""
    digest = hashlib.sha256()
    for column in columns:
        for i, text in enumerate(column):
            if i:
                digest.update(b"\0")
            for piece in text:
                digest.update(piece.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def require_same(data: Data, found: Mapping[str, str], known: JsonValue, *, where: Path) -> None:
    """Raises UserError, which names the split and its files, unless every split has its `known` fingerprint.

    Runs of older versions recorded only the fingerprint of the training data.
    """
    known = known if isinstance(known, dict) else {"train": known}
    for split, name in SPLITS.items():
        if split in known and known[split] != found.get(split):
            source = data.sources.get(split, data.sources["train"])
            of = source.name if isinstance(source, HubDataset) else ", ".join(map(str, source.files))
            raise UserError(
                f"{where}: the {name} data changed since this run began ({of}); restore them, or start a new run"
            )


class Example(Protocol):
    """An example of a data set from which some are held out."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels. Each part gets its share of the examples of each."""
        ...

    @property
    def normalized(self) -> str:
        """What examples of one part have in common."""
        ...


E = TypeVar("E", bound=Example)


def complete_splits(
    splits: Mapping[str, list[E]], held_out: HeldOut, *, expected: str, by_label: bool = True, tested: bool = True
) -> dict[str, list[E]]:
    """The splits; without one for validation, some of training is held out for it, and as much for a missing test.

    A number of examples is held out as that share of each label. Without `tested`, a missing test stays missing. Raises
    UserError, which names what was `expected`, if there are too few examples.
    """
    completed = dict(splits)
    if "valid" not in completed:
        parts = ("valid", "test") if tested and "test" not in completed else ("valid",)
        n = len({example.normalized for example in completed["train"]})
        share = share_of(held_out, n, expected.partition(",")[0].partition(" to ")[0], parts=len(parts))
        *held, train = hold_out(completed["train"], [share] * len(parts), by_label=by_label)
        if not all(held):
            raise UserError(f"data.train: expected more {expected}, got {n}; give data.valid")
        completed |= dict(zip(parts, held, strict=True)) | {"train": train}
    return {split: completed[split] for split in SPLITS if split in completed}


def hold_out(examples: Sequence[E], shares: Sequence[float], *, by_label: bool) -> list[list[E]]:
    """Parts of the examples with these shares, then the rest.

    With `by_label`, each part has its share of every label, or of the rarest one of each text, and the rest is never
    without it. Equal texts are in the same part. The choice depends on the texts alone, not on their order.
    """
    counts = Counter(name for example in examples for name in example.labels)
    groups: dict[str, list[E]] = {}
    for example in examples:
        groups.setdefault(example.normalized, []).append(example)
    strata: dict[str, list[str]] = {}
    for text, group in groups.items():
        names = (name for example in group for name in example.labels)
        rarest = min(names, key=lambda name: (counts[name], name), default="")
        strata.setdefault(rarest if by_label else "", []).append(text)
    part_of: dict[str, int] = {}
    for texts in strata.values():
        texts.sort(key=lambda text: key("held out", text))
        bounds = [min(round(sum(shares[: i + 1]) * len(texts)), len(texts) - 1) for i in range(len(shares))]
        for i, text in enumerate(texts):
            part_of[text] = sum(i >= bound for bound in bounds)
    parts: list[list[E]] = [[] for _ in range(len(shares) + 1)]
    for example in examples:
        parts[part_of[example.normalized]].append(example)
    return parts
