"""Reads large, well-formed CSV and TSV by pyarrow, a block of rows at a time. Imports no torch."""

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clearhead.brief import brief
from clearhead.data.files import opened
from clearhead.recipe.places import Place

BLOCK = 1 << 20
"""Bytes that are read at once."""
LARGE = 1 << 22
"""Bytes of a file from which blocks are worth their import."""
LONGEST = 1 << 26
"""Bytes without a row's end, after which the rows are no longer looked for."""
END, RETURN, QUOTE = b'\n\r"'


@dataclass(frozen=True)
class Block:
    """Whole rows of a file."""

    __repr__ = brief

    content: bytes
    line: int
    """The line where it begins."""
    lines: np.ndarray
    """The line where each row begins."""
    delimiter: str
    is_quoted: bool

    def columns(self, at: Sequence[int], width: int) -> list[list[str]] | None:
        """The cells in these columns; None unless all rows have `width` cells in UTF-8, and one of these has text."""
        import pyarrow as pa
        from pyarrow import csv

        names = [f"{i}" for i in range(width)]
        kept = [names[i] for i in at]
        try:
            table = csv.read_csv(
                pa.BufferReader(self.content),
                csv.ReadOptions(use_threads=False, block_size=len(self.content) + 1, column_names=names),
                csv.ParseOptions(
                    delimiter=self.delimiter, quote_char=self.is_quoted and '"', newlines_in_values=self.is_quoted
                ),
                csv.ConvertOptions(
                    include_columns=[*dict.fromkeys(kept)], column_types=dict.fromkeys(kept, pa.string())
                ),
            )
        except pa.ArrowInvalid:
            return None
        cells: list[list[str]] = [table[name].to_pylist() for name in kept]
        return cells if table.num_rows == len(self.lines) and all(map(any, zip(*cells, strict=True))) else None


def is_large(path: Place) -> bool:
    """Returns True for a large file if pyarrow is installed."""
    try:
        import pyarrow.csv  # noqa: F401
    except ImportError:
        return False
    return isinstance(path, Path) and path.is_file() and path.stat().st_size >= LARGE


def read_blocks(path: Place, delimiter: str, *, is_quoted: bool, skip_lines: int) -> Iterator[Block | int]:
    """Yields the blocks of a file in UTF-8 after its first lines.

    Quotes are double quotes, and doubled inside a cell. Yields the line from which on that is not so, and stops.
    """
    with opened(path) as file:
        held, line, more = file.read(3).removeprefix(codecs.BOM_UTF8), 1, True
        while more or held:
            content = file.read(BLOCK)
            more = bool(content)
            held += content if more or held.endswith(b"\n") else b"\n"
            for _ in range(skip_lines):
                held, line, skip_lines = held.partition(b"\n")[2], line + 1, skip_lines - 1
            codes = np.frombuffer(held, np.uint8)
            ends = np.flatnonzero(codes == END)
            quotes = np.flatnonzero(codes == QUOTE) if is_quoted else ends[:0]
            stops = ends[np.searchsorted(quotes, ends) % 2 == 0] if len(quotes) else ends
            if not len(stops):
                if len(held) > LONGEST or not more:
                    yield line
                    return
                continue
            stop = int(stops[-1]) + 1
            starts = np.append(0, stops[:-1] + 1)
            block = held[:stop]
            returns = np.flatnonzero(codes[:stop] == RETURN) if b"\r" in block else ends[:0]
            if (codes[returns + 1] != END).any() or not _is_well_formed(codes, quotes[quotes < stop], delimiter):
                yield line
                return
            filled = starts[(codes[starts] != END) & (codes[starts] != RETURN)]
            yield Block(block, line, line + np.searchsorted(ends, filled), delimiter, is_quoted)
            line, held = line + int(np.searchsorted(ends, stop)), held[stop:]


def _is_well_formed(codes: np.ndarray, quotes: np.ndarray, delimiter: str) -> bool:
    """Returns True if each quote begins or ends a cell, or is one of two inside a cell."""
    before = codes[quotes[::2] - 1][1 if len(quotes) and quotes[0] == 0 else 0 :]
    after = codes[quotes[1::2] + 1]
    begins = (before == ord(delimiter)) | (before == END) | (before == QUOTE)
    ends = (after == ord(delimiter)) | (after == END) | (after == QUOTE) | (after == RETURN)
    return bool(begins.all() and ends.all())
