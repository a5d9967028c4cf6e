"""Sentence pairs and texts read from files, tables and datasets. Imports no torch.

Everything is read row by row, so data may be larger than memory. `read_pairs` and `read_texts` collect all rows.
"""

import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from clearhead.data.bad_rows import BadRows, RowErrors, read_each
from clearhead.data.files import nearest, read_chunks, read_lines, read_text
from clearhead.data.tables import Cells, fields, read_cells, roots_of, texts_of
from clearhead.errors import UserError, reason, refuse, require
from clearhead.recipe.data import (
    Column,
    Data,
    HubDataset,
    Languages,
    ParallelFiles,
    RowSource,
    Source,
    Table,
    TextFiles,
)
from clearhead.recipe.places import Place

if TYPE_CHECKING:
    import datasets

T = TypeVar("T")
PICTURES = ("pictures", 'try kind = "table", or another task')
NO_TEXTS = {
    **dict.fromkeys(("image_folder", "idx", "npz"), PICTURES),
    "tagged": ("words with tags", 'try task = "tagging"'),
    "squad": ("questions", 'try task = "question_answering"'),
}
"""What other kinds of source hold, and what to try."""
STREAMED = 1 << 62
"""The size in bytes of a dataset that is streamed: unknown, and probably too large for memory."""
DATASET_ROWS = 1024
"""Number of rows of a dataset read at once."""


@dataclass(frozen=True)
class Stream(Generic[T]):
    """An iterable that reads its source again at each iteration."""

    begin: Callable[[], Iterator[T]]

    def __iter__(self) -> Iterator[T]:
        return self.begin()


@dataclass(frozen=True, slots=True)
class Pairs:
    """Sentences and their translations: target[i] translates source[i]."""

    source: list[str]
    target: list[str]

    @classmethod
    def of(cls, rows: Iterable[tuple[str, ...]]) -> Self:
        """All rows, in memory."""
        pairs = cls([], [])
        for source, target in rows:
            pairs.source.append(source)
            pairs.target.append(target)
        return pairs

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return zip(self.source, self.target, strict=True)


def rows_of(source: Source) -> Iterator[tuple[str, ...]]:
    """Yields the examples of a source in order, including empty ones. Each is a pair or one text.

    Raises UserError if a file is missing, empty, undecodable or misaligned, or if a column is missing. The
    errors come while iterating, so an exhausted iterator means a valid source.
    """
    match source:
        case ParallelFiles():
            return _parallel(source)
        case TextFiles():
            return ((text,) for path in source.paths for text in _documents(path, source))
        case Table() | HubDataset():
            return examples_of(source, source.columns, partial(texts_of, source.columns))
        case Languages(to=parts, tags=tags):
            return (tagged(tags[name], row) for name, part in parts.items() for row in rows_of(part))
        case _:
            raise refuse(source.kind, "texts", *NO_TEXTS[source.kind])


def examples_of(source: Source, columns: Sequence[Column], make: Callable[[str, list[object]], T]) -> Iterator[T]:
    """Yields what `make` makes of the place and the cells of each row of a table or dataset.

    Raises BadRows at the end if it raised BadRow or rows cannot be read, unless the source leaves them out. Raises
    UserError for a source without columns.
    """
    skip = isinstance(source, RowSource) and source.skip_bad
    return read_each(lambda errors: cells_of(source, columns, errors), make, skip=skip)


def left_out(data: Data, read: Callable[[Source], Iterable[object]] = rows_of) -> list[str]:
    """The mistake in each bad row that the sources of the data leave out. `read` reads a source."""
    errors: list[str] = []
    for source in data.sources.values():
        for part in [*source.parts.values(), source]:
            if isinstance(part, RowSource) and part.skip_bad:
                strict: Any = part.model_copy(update={"skip_bad": False})
                try:
                    deque(read(strict), maxlen=0)
                except BadRows as error:
                    errors += map(str, error.rows)
    return errors


def cells_of(source: Source, columns: Sequence[Column], errors: RowErrors) -> Cells:
    """Yields the cells in the given columns of a table or dataset. Adds rows that cannot be read to `errors`.

    Raises UserError for a source without columns.
    """
    match source:
        case Table():
            return read_cells(source, columns, errors)
        case HubDataset():
            return _dataset(source, columns, errors)
        case _:
            raise UserError(f'{source.kind}: expected a table or dataset with columns, got none; try kind = "table"')


def pairs_of(source: Source) -> Stream[tuple[str, ...]]:
    """The pairs of a source. Raises UserError if it has single texts."""
    if not source.is_paired:
        raise UserError(f'{source.kind}: expected pairs of source and target, got single texts; try kind = "parallel"')
    return Stream(lambda: rows_of(source))


def documents_of(source: Source) -> Stream[Iterable[str]]:
    """The documents of a source, each as the pieces it is read in. Raises UserError if it has pairs."""
    if source.is_paired:
        raise UserError(f'{source.kind}: expected single texts, got pairs of source and target; try kind = "text"')
    if isinstance(source, TextFiles) and source.documents == "file":
        paths = source.paths
        return Stream(lambda: (read_chunks(path) for path in paths))
    return Stream(lambda: rows_of(source))


def read_pairs(source: Source) -> Pairs:
    """All pairs of a source, in memory."""
    return Pairs.of(pairs_of(source))


def read_texts(source: Source) -> list[str]:
    """All documents of a source, in memory."""
    return ["".join(document) for document in documents_of(source)]


def tagged(tag: str, row: tuple[str, ...]) -> tuple[str, ...]:
    """A pair with a tag before its source; an empty source stays empty."""
    return (tag + row[0] if row[0].strip() else "", *row[1:])


def _parallel(files: ParallelFiles) -> Iterator[tuple[str, ...]]:
    if len(files.source) != len(files.target):
        raise UserError(
            f"{files.source[0]} and {files.target[0]}: expected as many files of source and of target, got"
            f" {len(files.source)} and {len(files.target)}; give the other half of each pair"
        )
    for source, target in zip(files.source, files.target, strict=True):
        yield from _aligned(source, target)


def _aligned(source_file: Place, target_file: Place) -> Iterator[tuple[str, ...]]:
    n_source = n_target = 0
    for source, target in zip_longest(read_lines(source_file), read_lines(target_file)):
        n_source, n_target = n_source + (source is not None), n_target + (target is not None)
        if n_source == n_target:
            yield source, target
    if n_source != n_target:
        raise UserError(
            f"{source_file} and {target_file}: expected as many lines in both,"
            f" got {n_source} and {n_target}; try files where line n translates line n"
        )


def _documents(path: Place, files: TextFiles) -> Iterator[str]:
    match files.documents:
        case "file":
            yield read_text(path)
        case "line":
            yield from read_lines(path)
        case "blank_line":
            runs = groupby(read_lines(path), lambda line: bool(line.strip()))
            yield from ("\n".join(run) for is_filled, run in runs if is_filled)


def _dataset(wanted: HubDataset, columns: Sequence[Column], errors: RowErrors) -> Cells:
    rows = _load(wanted)
    first = next(iter(rows), None)
    if first is None:
        raise UserError(f"{wanted.name}: expected rows in split {wanted.split!r}, got none; try another split")
    roots = roots_of(columns, [*map(str, first)], wanted.name)
    features: Any = rows.features or {}  # A stream may not know them.
    tags = {root: names_of_tags for root in roots if root in features and (names_of_tags := _tag_names(features[root]))}

    def objects() -> Iterator[tuple[str, object]]:
        batches = cast(Any, rows.select_columns(roots)).iter(DATASET_ROWS)
        values = (row for batch in batches for row in zip(*(batch[root] for root in roots), strict=True))
        for at, row in enumerate(values):
            cells = dict(zip(roots, row, strict=True))
            cells |= {root: [names[i] for i in cells[root]] for root, names in tags.items()}
            yield f"{wanted.name}:row {at}", cells

    return fields(objects(), columns, errors)


def _tag_names(feature: Any) -> list[str]:
    """The names of tags that are stored as lists of numbers; none for any other column."""
    return list(getattr(getattr(feature, "feature", None), "names", None) or [])


def version_of(wanted: HubDataset) -> tuple[int, str]:
    """The size of a dataset in memory in bytes, and a fingerprint that changes with its content."""
    rows = _load(wanted)
    import datasets

    if isinstance(rows, datasets.Dataset):
        return rows.data.nbytes, rows._fingerprint  # The key of the library's own caches.
    return STREAMED, secrets.token_hex(8)  # It may change between two readings.


def _load(wanted: HubDataset) -> "datasets.Dataset | datasets.IterableDataset":
    require(wanted.name, "datasets", "data")
    import datasets

    folder = Path(wanted.name)
    is_saved = any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))
    try:
        if is_saved:
            loaded = datasets.load_from_disk(wanted.name)
        else:
            loaded = datasets.load_dataset(wanted.name, wanted.config, streaming=wanted.streaming)
    except Exception as error:  # the network, the hub and the files each raise their own types
        remedy = "a folder of files in one known format" if folder.is_dir() else "its local folder, or the network"
        raise UserError(
            f"{wanted.name}: expected a dataset, got {type(error).__name__}: {reason(error)}; try {remedy}"
        ) from None
    if isinstance(loaded, datasets.Dataset | datasets.IterableDataset):
        return loaded
    if wanted.split not in loaded:
        remedy = nearest(wanted.split, map(str, loaded))
        raise UserError(f"{wanted.name}: expected a split {wanted.split!r}, got none{remedy}")
    return loaded[wanted.split]
