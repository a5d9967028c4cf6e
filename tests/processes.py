"""Every process that a test starts: with a limit of time, and with the signals that a terminal would give it."""

import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SECONDS = 600.0
"""After which a process is killed, whatever it waits for: many times what any of them takes."""

Command = Sequence[str | Path]


def run(command: Command, *, timeout: float = SECONDS, check: bool = False, **options: Any) -> Any:
    """As `subprocess.run`; raises TimeoutExpired after `timeout` seconds, with the process and its children killed."""
    given = options.pop("input", None)
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if given is not None:
        options["stdin"] = subprocess.PIPE
    with started(command, timeout=timeout + 5, **options) as process:
        out, err = process.communicate(given, timeout=timeout)
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


@contextmanager
def started(command: Command, *, timeout: float = SECONDS, **options: Any) -> Iterator[Any]:
    """As `subprocess.Popen`. At the end of the block, and after `timeout` seconds, it is killed with its children.

    So every read and wait within the block ends.
    """
    with default_signals():
        process = subprocess.Popen(command, start_new_session=True, **options)
    clock = threading.Timer(timeout, kill, [process])
    clock.daemon = True
    clock.start()
    try:
        yield process
    finally:
        clock.cancel()
        kill(process)
        process.wait(SECONDS)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def copies(n: int, work: Callable[[int], None]) -> list[int]:
    """Exit codes of n copies of this process, which call `work` with their numbers.

    For a process that `run` has started, whose limit of time is theirs, too.
    """
    children: list[int] = []
    for number in range(n):
        if (child := os.fork()) == 0:
            code = 1
            try:
                work(number)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def copied() -> int:
    """As `os.fork`, for who ends the copy when its time is over."""
    return os.fork()


def kill(process: "subprocess.Popen[Any]") -> None:
    """Kill a process and what it has started."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


@contextmanager
def default_signals() -> Iterator[None]:
    """Let what is started in the block have Python's own handlers.

    A background job of a shell begins with SIGINT ignored, and its children inherit that; Popen's `restore_signals`
    leaves it so.
    """
    numbers = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) == signal.SIG_IGN]
    for number in numbers:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
