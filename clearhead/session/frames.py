"""Writes data that a program holds as files of JSON lines, which are read like any other. Imports no torch."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

from clearhead.errors import UserError
from clearhead.recipe.data import SPLITS

NAMES = {"validation": "valid", "dev": "valid", "val": "valid"}
"""Other names of splits."""
COLUMNS = ("text", "label"), ("text", "text_pair", "label")
"""The columns of rows without names, by how many they are."""
WANTED = "a frame of pandas or polars, a Dataset, a list of rows, or a path"


def splits_in(data: object) -> dict[str, object]:
    """The parts of a dictionary by split, such as a DatasetDict; any other data are all for training."""
    if not isinstance(data, Mapping) or "train" not in data:
        return {"train": data}
    named = {NAMES.get(name, name): part for name, part in data.items()}
    return {name: part for name, part in named.items() if name in SPLITS}


def write_rows(data: object, path: Path, *, names: Sequence[str] = ()) -> Path:
    """Writes the rows of data to a new file, one JSON object a line, and returns its path.

    `names` are those of the columns where rows have none. Raises UserError for data without rows, and for a cell that
    is no text, number, list or dictionary.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    n = 0
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        for n, row in enumerate(_rows(data, names), start=1):
            cells = {str(name): None if _is_nan(cell) else cell for name, cell in row.items()}
            try:
                file.write(json.dumps(cells, ensure_ascii=False, allow_nan=False, default=plain) + "\n")
            except (TypeError, ValueError) as error:
                raise UserError(f"data: row {n}: expected texts, numbers, lists or dictionaries, got {error}") from None
    if not n:
        raise UserError(f"data: expected {WANTED}, got no rows")
    return path


def plain(value: Any) -> object:
    """A value of another library as a JSON value. Raises TypeError if JSON has no such value."""
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, date | time | Decimal | Enum | Path | UUID):
        return str(value)
    convert = getattr(value, "tolist", None)  # A scalar or an array of NumPy.
    if convert is None:
        raise TypeError(type(value).__name__)
    return convert()


def _is_nan(cell: object) -> bool:
    return isinstance(cell, float) and cell != cell


def _rows(data: Any, names: Sequence[str]) -> Iterator[Mapping[Any, object]]:
    """The rows of any data as dictionaries."""
    library = type(data).__module__.partition(".")[0]
    if library == "pandas" and not data.columns.is_unique:
        raise UserError(f"data: expected columns with different names, got {', '.join(map(str, data.columns))}")
    if library in ("pandas", "polars") or isinstance(data, Mapping):
        columns = data if isinstance(data, Mapping) else _columns(data, library)
        if len({len(column) for column in columns.values()}) > 1:
            raise UserError("data: expected columns of one length, got several")
        yield from (dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True))
    elif library == "datasets":
        yield from (_named(row, data.features or {}) for row in data)
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes):
        yield from (_row(row, names) for row in data)
    else:
        raise UserError(f"data: expected {WANTED}, got {type(data).__name__}")


def _columns(frame: Any, library: str) -> dict[Any, list[object]]:
    return frame.to_dict("list") if library == "pandas" else frame.to_dict(as_series=False)


def _named(row: Mapping[str, Any], features: Mapping[str, Any]) -> dict[str, object]:
    """A row of a Dataset with the names of labels and tags that it holds as numbers."""
    cells: dict[str, object] = dict(row)
    for column, feature in features.items():
        if names := getattr(feature, "names", None):
            cells[column] = None if row[column] in (None, -1) else names[row[column]]
        elif names := getattr(getattr(feature, "feature", None), "names", None):
            cells[column] = [names[tag] for tag in row[column]]
    return cells


def _row(row: object, names: Sequence[str]) -> Mapping[Any, object]:
    """A row as a dictionary. A text or a tuple gets the names of its columns."""
    if isinstance(row, Mapping):
        return row
    cells = (row,) if isinstance(row, str) else row
    if not isinstance(cells, Sequence):
        raise UserError(f"data: expected rows that are dictionaries or tuples, got {type(row).__name__}")
    if all(isinstance(cell, Mapping) for cell in cells):
        return {"messages": cells}
    own = getattr(row, "_fields", None)  # Of a named tuple.
    known = own or next((some for some in (names, ("text",), *COLUMNS) if len(some) == len(cells)), None)
    if known is None:
        raise UserError(f"data: expected rows of {len(names) or 2} cells, got {len(cells)}; give dictionaries")
    return dict(zip(known, cells, strict=True))
