"""What the commands that use a model read and write: texts on the line, files, streams. Imports no torch."""

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from cyclopts import Parameter

from clearhead.cli.options import Device, Flag, tell
from clearhead.errors import UserError, reason

LINES = 512
"""Lines of a file that are read at once."""


@Parameter(name="*")
@dataclass(frozen=True)
class Options:
    """The options that the commands of predictions share."""

    file: Path | None = None
    """File to read: lines of text (.gz is fine), or a table: .csv, .tsv, .jsonl, .parquet."""
    out: Path | None = None
    """File to write, once all is done: JSON lines if its name ends with .jsonl, else a line for each input."""
    text: str | None = None
    """Column of the text in a table (default: that of the training data, or text); its index without a header."""
    text_pair: str | None = None
    """Column of the second text, where the model reads two."""
    int8: Flag = False
    """Round the weights to eight bits: faster, and nearly the same (CPU only)."""
    int4: Flag = False
    """Round the weights to four bits: less accurate, and on a CPU quickest for one text at a time."""
    device: Device = "cpu"
    """Where to compute."""
    json: Flag = False
    """Print a JSON object for each input."""


DEFAULTS = Options()


def lines_of(texts: Sequence[str], file: Path | None) -> Iterable[Sequence[str]]:
    """The texts, else the lines of the file, else those of standard input. Raises UserError if both are given."""
    from clearhead.data.files import read_lines

    check_file(file, texts)
    if file is None:
        return [texts] if texts else arriving()
    return some_at_once(read_lines(file))


def some_at_once(rows: Iterator[Any]) -> Iterator[list[Any]]:
    """The rows in lists of at most LINES."""
    return iter(lambda: [*itertools.islice(rows, LINES)], [])


def check_file(file: Path | None, texts: object = None) -> None:
    """Raises UserError, before a model is loaded, if a file cannot be read, or stands beside texts."""
    from clearhead.data.files import opened

    if file is None:
        return
    if texts:
        raise UserError(f"--file {file}: expected it alone, got a text on the line too; leave out one of the two")
    with opened(file):
        pass


def picture(path: str) -> Path:
    """The image file at this path. Raises UserError if there is none."""
    if not Path(path).is_file():
        raise UserError(f"{path}: expected an image file, as this model reads images, found none; try another path")
    return Path(path)


def texts_in(file: Path, *, pairs: bool) -> "list[str | tuple[str, str]]":
    """The lines of a file that are not blank; with `pairs`, each as two texts with a tab between them."""
    from clearhead.data.files import read_lines

    texts: list[str | tuple[str, str]] = []
    for i, line in enumerate(read_lines(file), 1):
        first, tab, second = line.partition("\t")
        if pairs and line.strip() and not tab:
            raise UserError(f"{file}:{i}: expected a source and a target with a tab between them, got one text")
        if line.strip():
            texts.append((first, second) if pairs else line)
    return texts


def arriving() -> Iterator[list[str]]:
    """The lines of standard input as they arrive: one if typed, many from a file."""
    if sys.stdin is None:  # closed: `<&-`
        return
    if sys.stdin.isatty():
        tell("Type a sentence and Enter; Ctrl-D ends.")
    rest, number = b"", 0
    while True:
        chunk = os.read(sys.stdin.fileno(), 1 << 16)  # Returns the available bytes, without waiting for more.
        whole, newline, rest = (rest + chunk).rpartition(b"\n") if chunk else (rest, b"", b"")
        lines: list[str] = []
        try:
            for raw in whole.split(b"\n") if whole or newline else []:
                lines.append(raw.removesuffix(b"\r").decode("utf-8-sig" if number == 0 else "utf-8"))
                number += 1
        except UnicodeDecodeError as error:
            bad = f"0x{error.object[error.start]:02X}"
            yield lines
            raise UserError(
                f"standard input:{number + 1}: expected UTF-8, got the byte {bad}; try `iconv -f LATIN1 -t UTF-8`"
            ) from None
        if lines:
            yield lines
        if not chunk:
            return


@contextmanager
def stream_to(out: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that has its name once it is complete. Raises UserError if it cannot be written."""
    if out is None:
        yield sys.stdout
        return
    from clearhead.storage.disk import temporary_file

    temporary = temporary_file(out)
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
        os.replace(temporary, out)  # noqa: PTH105 - as in storage.disk
    except OSError as error:
        raise UserError(f"{out}: expected to write it, got {reason(error)}; try another folder") from None
    finally:
        temporary.unlink(missing_ok=True)
