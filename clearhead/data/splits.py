"""The splits of a recipe's data: what is trained on, what is held out, and a fingerprint of it. Imports no torch.

Splits are read anew each time one goes through them, and never whole in memory.
"""

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from pydantic import JsonValue

from clearhead.data.encoded import running
from clearhead.data.sources import Stream, documents_of, pairs_of
from clearhead.errors import UserError
from clearhead.randomness import key
from clearhead.recipe import LanguageData, TranslationData
from clearhead.recipe.data import HubDataset, ParallelFiles, Source, Table, TextFiles

Row = tuple[str, ...]


def translation_splits(data: TranslationData) -> dict[str, Stream[Row]]:
    """The recipe's splits; validation is held out of training where it has no source of its own."""
    train = pairs_of(located(data.train, data.folder))
    if data.valid is not None:
        splits = {"train": train, "valid": pairs_of(located(data.valid, data.folder))}
    else:
        splits = _held_out(train, data.held_out)
    if data.test is not None:
        splits["test"] = pairs_of(located(data.test, data.folder))
    return splits


def _held_out(rows: Stream[Row], wanted: int) -> dict[str, Stream[Row]]:
    """Training and validation, which is those of a fifth at most whose sources have the lowest hashes."""
    n_rows = 0

    def ranked() -> Iterator[tuple[int, int, str]]:
        nonlocal n_rows
        for i, row in enumerate(rows):
            n_rows += 1
            yield key("held out", row[0]), i, row[0]

    lowest = heapq.nsmallest(wanted, ranked())
    if n_rows < 10:
        raise UserError(f"data.train: expected at least 10 pairs to hold some out, got {n_rows}; give data.valid")
    lowest = lowest[: n_rows // 5]
    out = {i for _, i, _ in lowest}
    # Every pair of a held-out source leaves training, so that no source is in both.
    sources = {source for _, _, source in lowest}
    return {
        "train": Stream(lambda: (row for row in rows if row[0] not in sources)),
        "valid": Stream(lambda: (row for i, row in enumerate(rows) if i in out)),
    }


@dataclass(frozen=True)
class Text:
    """Documents, each as the pieces it is read in."""

    documents: Stream[Iterable[str]]
    n_documents: int

    def __iter__(self) -> Iterator[Iterable[str]]:
        return iter(self.documents)


def language_splits(data: LanguageData) -> tuple[Text, Text]:
    """Training and validation documents (one is running text); without its own source, validation is the end."""
    train = _documents(data.train, data.folder)
    if data.valid is not None:
        return train, _documents(data.valid, data.folder)
    if train.n_documents == 1:
        cut = int(sum(map(len, _only(train))) * (1 - data.held_out))
        return _of_one(lambda: _between(_only(train), 0, cut)), _of_one(lambda: _between(_only(train), cut, None))
    cut = min(int(train.n_documents * (1 - data.held_out)), train.n_documents - 1)
    return (
        Text(Stream(lambda: islice(train, cut)), cut),
        Text(Stream(lambda: islice(train, cut, None)), train.n_documents - cut),
    )


def _documents(source: Source, folder: Path) -> Text:
    found = documents_of(located(source, folder))
    if isinstance(source, TextFiles) and source.documents == "file":
        return _of_one(lambda: running(found))
    documents = Stream(lambda: (document for document in found if any(text.strip() for text in document)))
    n_documents = sum(1 for _ in documents)
    if not n_documents:
        raise UserError(f"data: expected text in {source.kind} source, got none; give another file")
    return Text(documents, n_documents)


def _of_one(begin: Callable[[], Iterator[str]]) -> Text:
    return Text(Stream(lambda: iter([begin()])), 1)


def _only(text: Text) -> Iterator[str]:
    """The pieces of the one document there is."""
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


def files_of(source: Source) -> list[Path]:
    """The files that a source is read from; none for a dataset."""
    match source:
        case ParallelFiles():
            return [source.source, source.target]
        case Table():
            return [source.path]
        case TextFiles():
            return list(source.paths)
        case HubDataset():
            return []


def located(source: Source, folder: Path) -> Source:
    """The same source with its relative paths under `folder`."""
    match source:
        case ParallelFiles():
            return source.model_copy(update={"source": folder / source.source, "target": folder / source.target})
        case Table():
            return source.model_copy(update={"path": folder / source.path})
        case TextFiles():
            return source.model_copy(update={"paths": tuple(folder / path for path in source.paths)})
        case HubDataset():
            return source


def fingerprint(*columns: Iterable[Iterable[str]]) -> str:
    """SHA-256 of the texts, in order, each as the pieces it is read in."""
    digest = hashlib.sha256()
    for column in columns:
        for i, text in enumerate(column):
            if i:
                digest.update(b"\0")
            for piece in text:
                digest.update(piece.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def require_same(
    data: TranslationData | LanguageData, found: Mapping[str, str], known: JsonValue, *, where: Path
) -> None:
    """Nothing, if every split has the fingerprint that is known of it; else UserError names the split and its files.

    Runs of older versions know that of the training data alone.
    """
    known = known if isinstance(known, dict) else {"train": known}
    sources = {"train": data.train, "valid": data.valid or data.train}
    if isinstance(data, TranslationData) and data.test is not None:
        sources["test"] = data.test
    for split, name in {"train": "training", "valid": "validation", "test": "test"}.items():
        if split in known and known[split] != found.get(split):
            source = sources[split]
            files = [str(path) for path in files_of(located(source, data.folder))]
            of = ", ".join(files) or (source.name if isinstance(source, HubDataset) else split)
            raise UserError(
                f"{where}: the {name} data changed since this run began ({of}); restore them, or start a new run"
            )
