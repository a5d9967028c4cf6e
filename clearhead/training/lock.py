"""The lock of a run folder, which allows only one writer.

The operating system frees the lock when its owner dies, so no stale lock has to be removed. Readers need no lock,
because files appear whole or not at all.
"""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from clearhead.data.corpus import NO_LOCKS
from clearhead.errors import UserError, reason
from clearhead.storage.disk import make_folder, remedy
from clearhead.storage.run_files import LOCK, OWNER
from clearhead.training.ranks import ALONE, Ranks

_log = logging.getLogger("clearhead")


@contextmanager
def held(folder: Path, ranks: Ranks = ALONE) -> Iterator[bool]:
    """Makes the folder if needed, and locks it against writes by other processes.

    The first process of a run holds the lock for all its processes, and a thread that holds it may take it again.
    Yields False, after a warning, if the file system has no locks. Raises UserError in all processes if another process
    or thread holds the lock, or if the folder cannot be written.
    """
    with ExitStack() as stack:
        yield ranks.first(
            ranks.together(lambda: stack.enter_context(_locked(folder)) if ranks.is_first else False),
        )


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: expected a folder for the run, got a file; try another folder")
    lock = FileLock(folder.resolve() / LOCK, timeout=0, is_singleton=True)
    try:
        make_folder(folder)
        is_locked = _taken(lock, folder)
        if is_locked and lock.lock_counter == 1:
            (folder / OWNER).write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
    except OSError as error:
        lock.release()
        raise UserError(f"{folder}: expected to write there, got {reason(error)}; {remedy(error)}") from None
    try:
        yield is_locked
    finally:
        if is_locked and lock.lock_counter == 1:
            for name in (OWNER, LOCK):  # A process that has opened it does not take it then.
                with suppress(OSError):
                    (folder / name).unlink()
        lock.release()


def _taken(lock: FileLock, folder: Path) -> bool:
    """Takes the lock. Returns False if the file system has no locks. Raises UserError if another process holds it."""
    try:
        lock.acquire()
    except Timeout:
        raise UserError(
            f"{folder}: expected a run that nobody writes to, got one in use by {owner(folder)};"
            " wait until it ends, or stop it first"
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        _log.warning(
            "%s: this file system has no locks (%s); make sure that no other process writes there",
            folder,
            reason(error),
        )
        return False
    return True


def owner(folder: Path) -> str:
    """The holder of the lock, as far as it is known."""
    try:
        return (folder / OWNER).read_text(encoding="utf-8").strip() or "another process"
    except (OSError, UnicodeDecodeError):
        return "another process"
