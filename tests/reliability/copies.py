"""Copies of a process that has imported everything: a command starts in milliseconds, in any surrounding."""

import atexit
import ctypes
import fcntl
import io
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import TracebackType
from typing import Self

import clearhead
from clearhead.cli import interrupts, main
from tests import processes

ROOT = Path(__file__).resolve().parents[2]
OTHERS = (
    "torch._dynamo",
    "torch.nn.utils",
    "matplotlib.backends.backend_svg",
    "matplotlib.pyplot",
    "sacrebleu",
    "uvicorn",
)
OTHERS += ("websockets", "transformers", "transformers.modeling_utils")


def imported() -> None:
    """Import what commands import when they run, some of which takes seconds."""
    for module in walk_packages(clearhead.__path__, "clearhead."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    for name in OTHERS:
        import_module(name)


class Copy:
    """A copy of this process that does some work and ends; it leads a group of its own."""

    def __init__(self, work: Callable[[], None], *, columns: int = 0) -> None:
        self.terminal, theirs = pty.openpty() if columns else (-1, -1)
        if columns:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.code: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = processes.copied()
        if self.pid == 0:
            _alone(work, theirs)
        if columns:
            os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.code is None:
            os.waitpid(self.pid, 0)
        if self.terminal >= 0:
            os.close(self.terminal)

    def is_over(self) -> bool:
        """Whether it has ended. Reads what it wrote to its terminal."""
        with suppress(OSError):
            while self.terminal >= 0 and select.select([self.terminal], [], [], 0)[0]:
                if not os.read(self.terminal, 65536):
                    break
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is not None

    def ended(self, seconds: float) -> int | None:
        """Its exit code; None if it has not ended in this time."""
        end = time.monotonic() + seconds
        while not self.is_over() and time.monotonic() < end:
            time.sleep(0.005)
        return self.code

    def interrupt(self) -> None:
        """Ctrl-C."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGINT)


def _alone(work: Callable[[], None], terminal: int) -> None:
    """Do the work in the copy, and end it.

    A server's end runs what is left for the end of the process. In a copy that would remove its parent's folders.
    """
    code = 1
    atexit._clear()
    weakref.finalize._registry.clear()  # pyrefly: ignore
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if terminal >= 0:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
            for number in range(3):
                os.dup2(terminal, number)
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        with suppress(Exception):
            traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception as error:  # As Python does at its end.
                with suppress(OSError):
                    os.write(2, f"Exception ignored in {stream}: {error}\n".encode())
                code = code or 120
        os._exit(code)


def command(
    words: Sequence[str], place: Path, prepare: Callable[[], None], variables: Mapping[str, str], *, starts: bool
) -> None:
    """Run a command in a folder, with streams from and to `.in`, `.out` and `.err` there unless `prepare` has others.

    With `starts`, in a Python that starts. The file `.ready` says that Ctrl-C is taken care of.
    """
    os.chdir(place)
    os.environ.update({"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), **variables})
    if not os.isatty(1):
        for number, (name, flags) in enumerate(((".in", os.O_RDONLY), (".out", WRITE), (".err", WRITE))):
            opened = os.open(place / name, flags, 0o666)
            os.dup2(opened, number)
            os.close(opened)
    prepare()
    if starts:
        os.execv(sys.executable, [sys.executable, "-c", START, *words])
    interrupts.end_at_once()
    (place / ".ready").touch()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(number)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv[1:] = words
    main()


START = """
from clearhead.cli import interrupts, main
from tests import processes
interrupts.end_at_once()
open(".ready", "w").close()
main()
"""
WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def _stream(number: int) -> io.TextIOWrapper | None:
    """A standard stream as Python makes it at its start; None if it is closed."""
    try:
        os.fstat(number)
        raw = io.FileIO(number, "w" if number else "r", closefd=False)
    except OSError:
        return None
    buffered = io.BufferedWriter(raw) if number else io.BufferedReader(raw)
    return io.TextIOWrapper(
        buffered,
        encoding="utf-8",
        errors="backslashreplace" if number == 2 else "strict",
        line_buffering=number == 2 or os.isatty(number),
    )


# --- a view of the files of one's own --------------------------------------------------------------------------

NEW_MOUNTS, READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE = 0x20000, 1, 32, 4096, 16384, 1 << 18


def mounted(place: str, *, kind: str = "", options: str = "") -> None:
    """A folder that is read-only for this process, or another file system of this kind in its place."""
    library = ctypes.CDLL(None, use_errno=True)

    def mount(source: str | None, target: str, fs: str | None, flags: int, data: str | None = None) -> None:
        given = [None if text is None else text.encode() for text in (source, target, fs)]
        if library.mount(*given, ctypes.c_ulong(flags), None if data is None else data.encode()):
            raise OSError(ctypes.get_errno(), f"mount {target}")

    if library.unshare(NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "unshare")
    mount(None, "/", None, RECURSIVE | PRIVATE)
    if kind:
        mount("none", place, kind, 0, options)
    else:
        mount(place, place, None, BIND)
        mount(None, place, None, REMOUNT | BIND | READ_ONLY)
