"""Whether a run is running, paused, finished or stopped, by what its folder says. Imports no torch."""

import os
import re
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clearhead.errors import pasted
from clearhead.live.log import History
from clearhead.storage.run_files import OWNER

Kind = Literal["preparing", "running", "paused", "finished", "stopped"]
Writer = Literal["alive", "paused", "none", "unknown"]
FRESH, FRESH_ELSEWHERE = 20.0, 600.0
"""Seconds since the last line of a log within which its run goes on: where nothing says who writes to it, and where a
process of another machine does."""
PROCESS = re.compile(r"process (\d+) on (.+)")


@dataclass(frozen=True)
class Status:
    """What a run is doing, in a word and in a sentence."""

    kind: Kind
    text: str


def status_of(folder: Path, history: History, written: float) -> Status:
    """The status of the run in a folder, whose log was last written at the time `written`."""
    writer, place = writer_of(folder, written), pasted(folder)
    go_on = f"clearhead resume {place} goes on with it"
    ended = history.ended
    if ended is not None:
        step = ended.get("step")
        steps = f"{step:,}" if isinstance(step, int) else "?"
        if ended.get("signal") is not None:
            return Status("stopped", f"by a signal after step {steps}; {go_on}")
        still = "; its process is still at work, such as judging the best model" if writer == "alive" else ""
        why = "" if ended.get("reason") == "finished" else f"{ended.get('reason')}, "
        return Status("finished", f"{why}after step {steps}{still}")
    if writer == "none":
        where = "before its first step" if not history.begun else "without a last word, as after an error or a kill"
        return Status("stopped", f"its process ended {where}; {go_on}")
    if writer == "paused":
        return Status("paused", "its process is suspended, as by Ctrl-Z; fg in its terminal lets it go on")
    if not history.begun:
        return Status("preparing", "reading and encoding the data")
    return Status("running", "")


def writer_of(folder: Path, written: float) -> Writer:
    """The process that writes to a folder, by the file in which it names itself while it holds the folder's lock."""
    times = [written]
    try:
        named = PROCESS.match((folder / OWNER).read_text(encoding="utf-8"))
        times.append((folder / OWNER).stat().st_mtime)
    except (OSError, UnicodeDecodeError):
        named = None
    if named is not None and named[2].strip() == socket.gethostname() and sys.platform != "win32":
        return _process(int(named[1]))
    age = min(abs(time.time() - at) for at in times)  # A clock may have gone back since.
    return "unknown" if age < (FRESH if named is None else FRESH_ELSEWHERE) else "none"


def _process(number: int) -> Writer:
    """A process of this machine. Only Linux says whether it is suspended."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return "none"
    except PermissionError:
        pass
    try:
        state = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return "alive"
    return "paused" if state[:1] in (["T"], ["t"]) else "none" if state[:1] == ["Z"] else "alive"
