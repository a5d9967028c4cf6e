"""Checks that all formats share: sizes, JSON, lines, vocabularies. Errors are one line. Imports no torch."""

import os
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TypeVar

from clearhead.config import Config
from clearhead.errors import UserError
from clearhead.json_text import parse
from clearhead.text.worker import failure

MAX_BYTES = 1 << 28
"""Limit for one file, several times the largest published vocabulary."""
MAX_ID = 1 << 24
MAX_PIECE_BYTES = 1 << 10

AGAIN = "try saving the tokenizer again"

T = TypeVar("T")
C = TypeVar("C", bound=Config)


def read_table(name: str, config: type[C]) -> C:
    """A table of `checkpoints/families`, which explains its fields."""
    text = resources.files("clearhead.checkpoints.families").joinpath(name).read_text(encoding="utf-8")
    return config.model_validate(tomllib.loads(text))


def read_limited(path: Path) -> bytes | None:
    """The contents, or None if there is no such file. Raises UserError if it exceeds MAX_BYTES."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"{path}: expected a readable file, got {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise UserError(f"{path}: expected a tokenizer of at most {MAX_BYTES >> 20} MiB, got more; try another file")
    return content


def json_object(content: bytes, where: str) -> dict[str, object]:
    """Parses a JSON object. Raises UserError if the file is not JSON or not an object."""
    value = parse(content, where, remedy=AGAIN)
    if not isinstance(value, dict):
        raise UserError(f"{where}: expected a JSON object, got {type(value).__name__}; {AGAIN}")
    return dict(value)


def lines(content: bytes, where: str) -> list[str]:
    """The lines of a list of pieces. Raises UserError if one is too long to be a piece."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{where}:{line}: expected UTF-8, got the byte 0x{content[error.start]:02X}") from None
    pieces = text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
    for number, line in enumerate(pieces, start=1):
        short_enough(line, f"{where}:{number}")
    return pieces


def short_enough(piece: str, where: str) -> str:
    """Returns the piece. Raises UserError if it is too long to occur in a text."""
    if len(piece) > MAX_PIECE_BYTES:
        raise UserError(f"{where}: expected a piece of at most {MAX_PIECE_BYTES} bytes, got {len(piece)} characters")
    return piece


def numbers(content: bytes, where: str) -> dict[str, int]:
    """{piece: its line}, counted from 0, of vocab.txt."""
    ids: dict[str, int] = {}
    for number, piece in enumerate(lines(content, where)):
        if ids.setdefault(piece, number) != number:
            raise UserError(
                f"{where}:{number + 1}: expected each piece once, got {piece[:40]!r} again after line {ids[piece] + 1};"
                " try the file the checkpoint came with"
            )
    return ids


def vocabulary(content: bytes, where: str) -> dict[str, int]:
    """{piece: id} with unique ids."""
    ids: dict[str, int] = {}
    for piece, number in json_object(content, where).items():
        short_enough(piece, where)
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < MAX_ID:
            raise UserError(f"{where}:{piece!r}: expected an id from 0 to {MAX_ID - 1}, got {str(number)[:40]}")
        ids[piece] = number
    if not ids or len(set(ids.values())) < len(ids):
        raise UserError(f"{where}: expected pieces with an id each, got {'the same id twice' if ids else 'none'}")
    return ids


def flag(settings: Mapping[str, object], key: str, default: bool) -> bool:
    """A boolean of tokenizer_config.json. Null gives the default."""
    value = settings.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise UserError(f"tokenizer_config.json:{key}: expected true or false, got {str(value)[:40]!r}")
    return value


def guarded(action: Callable[[], T], message: str, *, remedy: str = "") -> T:
    """Returns the action's result, and turns any exception of the library into a one-line UserError.

    The report of a panic on standard error is dropped.
    """
    try:
        with _without_reports():
            return action()
    except (KeyboardInterrupt, SystemExit, GeneratorExit, UserError):
        raise
    except BaseException as error:
        raise UserError(f"{message}, got {failure(error)}{remedy and f'; {remedy}'}") from None


@contextmanager
def _without_reports() -> Iterator[None]:
    """Suppresses messages that a library writes to standard error, such as Rust's report of a panic.

    Only while no other thread could be writing there: a server's log may show such a report.
    """
    if threading.active_count() > 1:
        yield
        return
    try:
        kept = os.dup(2)
    except OSError:  # It is closed.
        yield
        return
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
