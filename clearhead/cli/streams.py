"""The standard streams of a process of the command line: closed, full, or of an encoding that lacks characters."""

import atexit
import io
import os
import select
import shutil
import sys
from contextlib import suppress
from typing import NoReturn, TextIO

READER_LEFT = 141
"""The exit code of a process that SIGPIPE ends."""

NARROWEST, WIDEST = 20, 1000
"""Columns of a terminal. With fewer or more, libraries that lay out text loop for ever or fill the memory."""


class OutputStream(io.RawIOBase):
    """Writes bytes until one write fails, and drops the rest.

    The first failure is kept in `failure`. It is raised too, with `name` in place of a file's name, unless the stream
    is `optional`: a command that cannot tell how it is getting on still does its work.
    """

    def __init__(self, raw: io.RawIOBase, name: str, *, optional: bool) -> None:
        self.failure: OSError | None = None
        self._raw, self._name, self._optional = raw, name, optional

    def write(self, data: object, /) -> int:
        """Write some of the bytes, or drop all of them."""
        content = memoryview(data)  # pyrefly: ignore[bad-argument-type]
        try:
            while self.failure is None:
                if (written := self._raw.write(content)) is not None:
                    return written
                select.select((), (self._raw,), ())  # A pipe that does not block, and is full.
        except OSError as error:
            error.filename = self._name
            self.failure = error
            if not self._optional:
                raise
        return content.nbytes

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._raw.isatty()

    def fileno(self) -> int:
        return self._raw.fileno()


def prepare() -> OutputStream:
    """Make the standard streams safe to use; returns what standard output writes to.

    A closed stream becomes the null device, so that no file takes its number. Characters that an encoding lacks are
    written as escapes.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # Takes the least free number, which is this one.
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    elif isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="backslashreplace")
    output, sys.stdout = _guarded(sys.stdout, 1, "output", optional=False)
    _, sys.stderr = _guarded(sys.stderr, 2, "messages", optional=True)
    _fit_width()
    return output


def _guarded(stream: TextIO | None, number: int, name: str, *, optional: bool) -> tuple[OutputStream, TextIO]:
    known = stream if isinstance(stream, io.TextIOWrapper) else None
    with suppress(OSError):
        if known is not None:
            known.flush()
    bytes_of = known.buffer if known is not None else io.FileIO(number, "w", closefd=False)
    raw = OutputStream(getattr(bytes_of, "raw", bytes_of), name, optional=optional)
    guarded = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=known.encoding if known is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=known is not None and (known.line_buffering or known.write_through),
    )
    return raw, guarded


def _fit_width() -> None:
    """Put a width that works into the environment, where whatever lays out text looks first."""
    for name in ("COLUMNS", "LINES"):
        given = os.environ.get(name, "")
        if not (given.isascii() and given.isdecimal() and int(given[:9])):
            os.environ.pop(name, None)
    columns = shutil.get_terminal_size().columns
    if not NARROWEST <= columns <= WIDEST:
        os.environ["COLUMNS"] = str(min(max(columns, NARROWEST), WIDEST))


def leave(code: int) -> NoReturn:
    """Ends the process without freeing what it holds, which takes seconds on a busy machine."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
