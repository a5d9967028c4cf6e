"""Sentence pairs and texts from where they lie: files, tables, datasets. Imports no torch."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from clearhead.data.files import nearest, read_lines, read_text
from clearhead.data.tables import read_columns, text_at
from clearhead.errors import UserError
from clearhead.recipe.data import Column, HubDataset, ParallelFiles, Source, Table, TextFiles

if TYPE_CHECKING:
    import datasets

# Between documents: whole blank lines, but not the indent of the line that follows them.
BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")


@dataclass(frozen=True, slots=True)
class Pairs:
    """source[i] is translated by target[i]."""

    source: list[str]
    target: list[str]

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, slots=True)
class Texts:
    """Documents, each one text."""

    text: list[str]

    def __len__(self) -> int:
        return len(self.text)


def read(source: Source) -> Pairs | Texts:
    """All examples of a source, in order, as they stand there: empty ones too.

    Raises UserError, in one line, for a missing, empty, undecodable or misaligned file, and for a missing
    column.
    """
    match source:
        case ParallelFiles():
            return _parallel(source)
        case TextFiles():
            return Texts(list(chain.from_iterable(_documents(path, source) for path in source.paths)))
        case Table():
            columns = _columns(source.source, source.target, source.text)
            return _of(read_columns(source, columns))
        case HubDataset():
            return _dataset(source)
        case _:
            assert_never(source)


def read_pairs(source: Source) -> Pairs:
    """As `read`. Raises UserError where the source has single texts."""
    found = read(source)
    if isinstance(found, Texts):
        raise UserError(f'{source.kind}: expected pairs of source and target, got single texts; try kind = "parallel"')
    return found


def read_texts(source: Source) -> Texts:
    """As `read`. Raises UserError where the source has pairs."""
    found = read(source)
    if isinstance(found, Pairs):
        raise UserError(f'{source.kind}: expected single texts, got pairs of source and target; try kind = "text"')
    return found


def _parallel(files: ParallelFiles) -> Pairs:
    source, target = read_lines(files.source), read_lines(files.target)
    if len(source) != len(target):
        raise UserError(
            f"{files.source} and {files.target}: expected as many lines in both,"
            f" got {len(source)} and {len(target)}; try files where line n translates line n"
        )
    return Pairs(source, target)


def _documents(path: Path, files: TextFiles) -> list[str]:
    match files.documents:
        case "file":
            return [read_text(path)]
        case "line":
            return read_lines(path)
        case "blank_line":
            return [part for part in BLANK_LINES.split(read_text(path).strip("\n")) if part.strip()]


def _columns(source: Column | None, target: Column | None, text: Column | None) -> list[Column]:
    return [column for column in (source, target, text) if column is not None]


def _of(columns: Sequence[list[str]]) -> Pairs | Texts:
    return Texts(columns[0]) if len(columns) == 1 else Pairs(*columns)


def _dataset(wanted: HubDataset) -> Pairs | Texts:
    rows = _load(wanted)
    names = [str(name) for name in _columns(wanted.source, wanted.target, wanted.text)]
    roots = list(dict.fromkeys(name if name in rows.column_names else name.split(".")[0] for name in names))
    for root in roots:
        if root not in rows.column_names:
            remedy = nearest(root, rows.column_names)
            raise UserError(f"{wanted.name}: expected a column {root!r}, got none{remedy}")
    if not len(rows):
        raise UserError(f"{wanted.name}: expected rows in split {wanted.split!r}, got none; try another split")
    chosen = [dict(zip(roots, values, strict=True)) for values in zip(*(rows[r] for r in roots), strict=True)]
    where = f"{wanted.name}:row "
    return _of([[text_at(row, name, where=where + str(i)) for i, row in enumerate(chosen)] for name in names])


def _load(wanted: HubDataset) -> "datasets.Dataset":
    try:
        import datasets
    except ImportError:
        raise UserError(
            f"{wanted.name}: expected the package datasets, got none; try pip install clearhead[data]"
        ) from None
    folder = Path(wanted.name)
    is_saved = any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))
    try:
        found = datasets.load_from_disk(wanted.name) if is_saved else datasets.load_dataset(wanted.name, wanted.config)
    except Exception as error:  # the network, the hub and the files each have their own
        reason = " ".join(str(error).split())[:200]
        remedy = "a folder of files in one known format" if folder.is_dir() else "its local folder, or the network"
        raise UserError(
            f"{wanted.name}: expected a dataset, got {type(error).__name__}: {reason}; try {remedy}"
        ) from None
    if isinstance(found, datasets.Dataset):
        return found
    if wanted.split not in found:
        remedy = nearest(wanted.split, map(str, found))
        raise UserError(f"{wanted.name}: expected a split {wanted.split!r}, got none{remedy}")
    return found[wanted.split]
