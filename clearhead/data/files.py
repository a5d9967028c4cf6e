"""Reads files as text and as lines. Errors name the line. Imports no torch."""

import bz2
import codecs
import difflib
import gzip
import io
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from clearhead.data.archives import archive_of, entries, is_junk
from clearhead.errors import UserError, reason
from clearhead.recipe.places import Place, Url

DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zipfile.BadZipFile)
"""What the readers of packed files raise."""
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""The encoding that each byte order mark says."""
WIDE = ("utf-16", "utf-32")
"""Encodings whose errors have no bytes of their own."""
CHUNK = 1 << 16
"""Number of bytes read at once."""
UNPACKED, EXPANSION = 1 << 25, 200
"""A file may unpack to the larger of UNPACKED bytes and EXPANSION times its size. Text packs to about a tenth."""
LONGEST_LINE = 1 << 27
"""Longest line in characters."""


class Unpacked(io.RawIOBase):
    """The contents of a packed file. A read raises UserError if they are far too large for the bytes read so far."""

    def __init__(self, path: Place, stream: Any, *, n_packed: Callable[[], int] | None) -> None:
        self._path, self._stream, self._n_packed, self._n = path, stream, n_packed, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer as far as there are bytes."""
        content: bytes = self._stream.read(len(buffer))
        buffer[: len(content)] = content
        self._n += len(content)
        if self._n_packed:
            check_expansion(self._path, self._n, self._n_packed())
        return len(content)

    def tell(self) -> int:
        """Number of bytes that were read."""
        return self._n


def check_expansion(path: Place, unpacked: int, packed: int) -> None:
    """Raises UserError if a file has unpacked to more than text does, as a decompression bomb does."""
    if unpacked > max(UNPACKED, EXPANSION * packed):
        got = f"{unpacked:,} bytes from {packed:,}"
        raise UserError(
            f"{path}: expected at most {EXPANSION} times its packed size, got {got}; if you trust it, try it unpacked"
        )


def _zstandard(packed: BinaryIO) -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        got = "got no such package; try pip install 'clearhead[data]'"
        raise UserError(f"Zstandard: expected pyarrow to read it, {got}") from None
    return pa.CompressedInputStream(pa.PythonFile(packed, "r"), "zstd")


PACKED: dict[bytes, Callable[[Any], Any]]
PACKED = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open, b"\x28\xb5\x2f\xfd": _zstandard}
"""What opens a packed file, by its first bytes."""


@contextmanager
def opened(path: Place) -> Iterator[BinaryIO | Unpacked]:
    """The contents of a file, also of one in an archive. Unpacks gzip, bzip2, xz and Zstandard while reading.

    Raises UserError with the nearest name if there is no such file.
    """
    try:
        if archive := archive_of(path):
            with opened(archive) as stream:
                for known, n_packed, open_entry in entries(archive, stream):
                    if archive / known == path:
                        yield _entry(path, open_entry(), n_packed)
                        return
            known = [one.as_posix() for one in files_in(archive)]
            raise UserError(f"{path}: expected a file in {archive}, got none{nearest(str(path), known)}")
        with path.open("rb") as file:
            yield _unpacked(path, file, file.peek(6))
    except FileNotFoundError:
        instead = "; check the address" if isinstance(path, Url) else _instead(path)
        raise UserError(f"{path}: expected a file, got none{instead}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: expected a file, got a folder; try a file in it") from None
    except DAMAGED as error:
        raise UserError(f"{path}: expected a whole packed file, got {error}; try fetching it again") from None
    except OSError as error:
        raise UserError(f"{path}: expected a readable file, got {error.strerror or reason(error)}") from None
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{str(path)!r}: expected the name of a file, got {error}") from None


def files_in(path: Path) -> Iterator[Path]:
    """The files in a folder and its folders in order of their names, or those in an archive, without junk."""
    if path.is_dir():
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not is_junk(name))
            yield from (Path(folder, name) for name in sorted(names) if not is_junk(name))
        return
    archive = archive_of(path) or path
    with opened(archive) as stream:
        found = [archive / name for name, *_ in entries(archive, stream) if not is_junk(name)]
    yield from (one for one in found if path in one.parents)


def read_files(path: Path) -> Iterator[tuple[Path, bytes]]:
    """Each of `files_in` with its content. Reads an archive once. Raises UserError as `opened` does."""
    if path.is_dir():
        for one in files_in(path):
            with opened(one) as file:
                yield one, _content(file)
        return
    archive, n = archive_of(path) or path, 0
    with opened(archive) as stream:
        for name, n_packed, open_entry in entries(archive, stream):
            if path in (archive / name).parents and not is_junk(name):
                content = _content(_entry(archive / name, open_entry(), n_packed))
                check_expansion(archive, n := n + len(content), archive.stat().st_size)
                yield archive / name, content


def _content(file: Any) -> bytes:
    """The whole content, read in pieces, so that a bomb is refused before it is in memory."""
    return b"".join(iter(lambda: file.read(CHUNK), b""))


def _entry(path: Place, file: Any, n_packed: int) -> Any:
    """A file of an archive, unpacked."""
    inside = Unpacked(path, file, n_packed=lambda: n_packed)
    return _unpacked(path, inside, file.peek(6))


def _unpacked(path: Place, file: Any, magic: bytes) -> Any:
    """The file, or what it holds if its first bytes say that it is packed."""
    n_packed = file.tell if isinstance(file, Unpacked) or file.seekable() else None
    unpack = next((unpack for mark, unpack in PACKED.items() if magic.startswith(mark)), None)
    return Unpacked(path, unpack(file), n_packed=n_packed) if unpack else file


def encoding_of(beginning: bytes) -> str | None:
    """The encoding that a byte order mark says; None without one."""
    return next((name for mark, name in MARKS.items() if beginning.startswith(mark)), None)


@contextmanager
def opened_text(
    path: Place, encoding: str | None, *, newline: str | None = None, errors: str = "strict"
) -> Iterator[io.TextIOWrapper]:
    """The text of a file in an encoding; None is what its byte order mark says, else UTF-8.

    A byte that cannot be decoded becomes a lone surrogate, by which `undecoded` finds it, or U+FFFD if `errors` is
    "replace". `newline` is as for `open`;
    None stands for a carriage return if the file's beginning has no other line end, else for a line feed. Raises
    UserError for an unknown encoding.
    """
    with opened(path) as content:
        file = io.BufferedReader(content, CHUNK) if isinstance(content, Unpacked) else content
        beginning = file.peek(CHUNK)  # pyrefly: ignore[missing-attribute]
        if newline is None:
            newline = "\r" if b"\r" in beginning and b"\n" not in beginning else "\n"
        name = encoding or encoding_of(beginning) or "utf-8"
        try:
            name = codecs.lookup(name).name
            name = "utf-8-sig" if name == "utf-8" and beginning.startswith(codecs.BOM_UTF8) else name
            how = errors if errors == "replace" or name[:6] in WIDE else "surrogateescape"
            yield io.TextIOWrapper(file, name, how, newline)
        except LookupError:
            raise UserError(f"{path}: expected an encoding that Python knows, got {encoding!r}; try cp1252") from None
        except UnicodeError as error:
            raise UserError(f"{path}: expected text in {name}, got {reason(error)}; try another encoding") from None


def undecoded(text: str) -> str | None:
    """The first byte in a text that could not be decoded, such as 0xE4."""
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"0x{ord(text[error.start]) - 0xDC00:02X}"
    return None


def read_chunks(path: Place, *, exact: bool = False, encoding: str | None = None) -> Iterator[str]:
    """Yields the text piece by piece while reading, without a byte order mark and, unless `exact`, with line feeds as
    line ends.

    The encoding is the given one, or what the byte order mark says, else UTF-8. Raises UserError on reaching a line
    that is not in it, and at the end if the whole text is blank.
    """
    n_lines, held, is_blank, more = 0, "", True, True
    with opened_text(path, encoding, newline="") as file:
        while more:
            more = bool(content := file.read(CHUNK))
            if byte := undecoded(content):
                line = n_lines + re.split("[\udc80-\udcff]", content, maxsplit=1)[0].count("\n") + 1
                raise UserError(
                    f"{path}:{line}: expected {encoding or 'UTF-8'}, got the byte {byte};"
                    f" try `iconv -f LATIN1 -t UTF-8`, or the file's true encoding"
                )
            n_lines += content.count("\n")
            # A line feed may start the next piece.
            text, held = held + content, "\r" if more and content.endswith("\r") and not exact else ""
            text = text if exact else text[: len(text) - len(held)].replace("\r\n", "\n")
            is_blank = is_blank and not text.strip()
            if text:
                yield text
    if is_blank:
        raise UserError(f"{path}: expected text, got an empty file; try another file")


def read_text(path: Place, *, encoding: str | None = None) -> str:
    """The whole text. Raises UserError as `read_chunks` does."""
    return "".join(read_chunks(path, encoding=encoding))


def read_lines(path: Place, *, exact: bool = False, encoding: str | None = None) -> Iterator[str]:
    """Yields the lines without their ends. Only a line feed ends a line; U+2028 inside a sentence does not.

    With `exact`, a carriage return before it stays. Raises UserError as `read_chunks` does, and if a line has more than
    LONGEST_LINE characters.
    """
    begun: list[str] = []
    n_lines = n_begun = 0
    for chunk in read_chunks(path, exact=exact, encoding=encoding):
        first, *others = chunk.split("\n")
        begun.append(first)
        n_begun += len(first)
        if n_begun > LONGEST_LINE:
            where = f"{path}:{n_lines + 1}"
            raise UserError(f"{where}: expected at most {LONGEST_LINE:,} characters a line, got more; try shorter ones")
        if others:
            yield "".join(begun)
            yield from others[:-1]
            begun, n_begun, n_lines = others[-1:], len(others[-1]), n_lines + len(others)
    if last := "".join(begun):
        yield last


def nearest(wanted: str, names: Iterable[str]) -> str:
    """A remedy that names the nearest of `names`, or the first twelve if none is near."""
    known = list(names)
    close = difflib.get_close_matches(wanted, known, n=1, cutoff=0.5)
    return f"; try {close[0]}" if close else f"; there are {', '.join(known[:12])}" if known else ""


def _instead(path: Path) -> str:
    if not path.parent.is_dir():
        return f"; there is no folder {path.parent}"
    names = sorted(other.name for other in path.parent.iterdir() if other.is_file())
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.5)
    return f"; try {path.parent / close[0]}" if close else f"; no name in {path.parent} is like it"
