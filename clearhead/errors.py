"""Errors that a user can cause, each one line: the place, the value, the remedy."""

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

__all__ = ["Interrupted", "NumericError", "OutOfMemory", "Refusal", "UserError"]


@dataclass(frozen=True)
class Refusal:
    """A value that is refused, in parts: `field: expected X, got Y; remedy`."""

    field: str
    """Where the value stands: `file[:line][:field]`, an option or a parameter."""
    expected: str
    got: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        got = f", got {self.got}" if self.got else ""
        place = f"{self.field}: " if self.field else ""
        return f"{place}expected {self.expected}{got}{self.remedy and f'; {self.remedy}'}"


class UserError(ValueError):
    """A user's mistake in one line: a `Refusal`, or another sentence.

    The command line prints it without a traceback and exits with `exit_code`. A message may quote text from elsewhere,
    and always is one line of printable characters.
    """

    exit_code = 2

    def __init__(self, message: str | Refusal, *, field: str = "") -> None:
        self.refusal = message if isinstance(message, Refusal) else None
        """The parts of the message, for code that reads them."""
        self.field = self.refusal.field if self.refusal else field
        """Where the value stands, if the code that raised it knows."""
        super().__init__("".join(c if c.isprintable() else " " if c.isspace() else "?" for c in str(message)))


def refuse(field: object, expected: str, got: object = "", remedy: str = "") -> UserError:
    """The error to raise for a refused value."""
    return UserError(Refusal(str(field), expected, str(got), remedy))


def require(where: str, module: str, extra: str, package: str = "") -> None:
    """Raises UserError with the extra to install if a module of a package is missing."""
    try:
        import_module(module)
    except ImportError:
        got = f"expected the package {package or module}, got none"
        raise UserError(f"{where}: {got}; try pip install 'clearhead[{extra}]'") from None


def expectation(mistake: Mapping[str, Any]) -> str:
    """One of pydantic's errors as "expected ...", or the message of our own validator."""
    return mistake["msg"].removeprefix("Value error, ").replace("Input should be", "expected", 1)


class OutOfMemory(UserError):
    """The machine has too little memory. The message names the setting to lower."""

    exit_code = 3


class NumericError(UserError):
    """Training met NaN or infinity and stopped before it touched a weight."""

    exit_code = 4


class Interrupted(UserError):
    """Ctrl-C or SIGTERM asked to stop; training has saved. `signal` decides the exit code."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal


MEMORY_SIGNS = (
    *("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory", "bad_alloc"),
    *("alloc_failed", "failed to map segment", "can't start new thread"),
)
"""Messages of libraries if memory, or addresses for a thread's stack, ran out."""


def sizes(*n_bytes: float) -> list[str]:
    """Numbers of bytes for people, with enough digits to distinguish unequal ones."""
    texts: list[str] = []
    for digits in range(1, 13):
        texts = [_size(n, digits) for n in n_bytes]
        if len(set(texts)) == len(set(n_bytes)):
            break
    return texts


def _size(n_bytes: float, digits: int) -> str:
    unit, name = next(((unit, name) for unit, name in _UNITS if n_bytes >= unit), (1, "bytes"))
    return f"{n_bytes:,.0f} bytes" if unit == 1 else f"{n_bytes / unit:,.{digits}f} {name}"


_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def pasted(path: object) -> str:
    """A path as it is typed in a shell, also where it begins like an option or a home folder."""
    word = str(path)
    return shlex.quote(f"./{word}" if word.startswith(("-", "~")) else word)


def is_memory(error: BaseException) -> bool:
    """True if an error, or one that caused it, says that memory ran out.

    The cause counts because readers blame their file for any failure. The text of a UserError does not count,
    because it may quote a file.
    """
    cause = error.__cause__ or error.__context__
    says = not isinstance(error, UserError) and any(sign in str(error).lower() for sign in MEMORY_SIGNS)
    # The loader's table of a thread's own variables is not memory that anybody could free.
    says = says and "static tls" not in str(error).lower()
    return isinstance(error, MemoryError | OutOfMemory) or says or (cause is not None and is_memory(cause))


def errno_of(error: BaseException) -> int | None:
    """The error number of the system, which some libraries give only in their message."""
    if isinstance(error, OSError):
        return error.errno
    match = re.search(r"\(os error (\d+)\)", str(error))
    return int(match[1]) if match else None


def reason(error: BaseException) -> str:
    """The reason of an error in one line, without a path. Uses the system's own words for an error number."""
    number = errno_of(error)
    return os.strerror(number) if number else " ".join(str(error).split())[:200] or type(error).__name__


@contextmanager
def compiling(field: str) -> Iterator[None]:
    """Raises UserError, which names `field`, if PyTorch's compiler fails inside, as it does without one for C++."""
    try:
        yield
    except RuntimeError as error:
        known = sys.modules.get("torch._dynamo.exc")  # Its import takes seconds, and what failed has imported it.
        if known is None or not isinstance(error, known.BackendCompilerFailed):
            raise
        cause = reason(error.inner_exception)
        raise UserError(
            f"{field}: expected a machine on which torch.compile works, got {cause}; leave it out"
        ) from error
