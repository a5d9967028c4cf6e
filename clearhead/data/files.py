"""Files as lines of UTF-8, with the line named where they are not. Imports no torch."""

import difflib
import gzip
import zlib
from collections.abc import Iterable
from pathlib import Path

from clearhead.errors import UserError

GZIP_MAGIC = b"\x1f\x8b"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_bytes(path: Path) -> bytes:
    """The contents, gzip unpacked. Raises UserError where there is no such file, with the nearest name."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(GZIP_MAGIC) else content
    except FileNotFoundError:
        raise UserError(f"{path}: expected a file, got none{_instead(path)}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: expected a file, got a folder; try a file in it") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: expected a whole gzip file, got {error}; try fetching it again") from None
    except OSError as error:
        raise UserError(f"{path}: expected a readable file, got {error.strerror}") from None


def read_text(path: Path) -> str:
    """The text, without a byte order mark and with plain line ends.

    Raises UserError where it is empty or not UTF-8, with the line.
    """
    content = read_bytes(path)
    if content.startswith(UTF16_MARKS):
        raise UserError(f"{path}: expected UTF-8, got UTF-16; try saving it as UTF-8")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}:{line}: expected UTF-8, got the byte 0x{content[error.start]:02X};"
            f" try `iconv -f LATIN1 -t UTF-8`, or the file's true encoding"
        ) from None
    if not text.strip():
        raise UserError(f"{path}: expected text, got an empty file; try another file")
    return text.replace("\r\n", "\n")


def read_lines(path: Path) -> list[str]:
    """The lines without their ends; only a line feed ends a line, so U+2028 inside a sentence does not."""
    return read_text(path).removesuffix("\n").split("\n")


def nearest(wanted: str, names: Iterable[str]) -> str:
    """A remedy that names the nearest of `names`, or all of them where none is near."""
    known = list(names)
    close = difflib.get_close_matches(wanted, known, n=1, cutoff=0.5)
    return f"; try {close[0]}" if close else f"; there are {', '.join(known[:12])}" if known else ""


def _instead(path: Path) -> str:
    if not path.parent.is_dir():
        return f"; there is no folder {path.parent}"
    names = sorted(other.name for other in path.parent.iterdir() if other.is_file())
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.5)
    return f"; try {path.parent / close[0]}" if close else f"; no name in {path.parent} is like it"
