"""Ctrl-C at any moment of the main commands, from the moment on that they take care of it."""

import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from signal import SIGINT

from tests.reliability import Counted
from tests.reliability.copies import imported
from tests.reliability.surroundings import COMMANDS, LIMIT, NEVER, Command, Workshop, free_port, left_behind, said, told
from tests.reliability.ways import Way

HERE = Way("as wished")
STARTS = Way("from the first import on", starts=True)
STOPPED = (130, -SIGINT)
"""The second where Python, at its end, has taken the handlers away; a shell makes 130 of it."""
MOMENTS = 15
STARTED = ("summary", "train", "translate", "serve")
"""Commands whose imports are interrupted, too."""
AT_ITS_END = 2.0
"""Seconds within which a command that was done anyway has ended."""
REPEATED = ("train", "train lm", "resume", "tokenizer train", "capture", "export", "lab", "curve")
"""Commands that write, and shall be able to when they are given again."""


def at_any_moment(
    folder: Path, commands: Sequence[Command] = COMMANDS, moments: int = MOMENTS, started: Sequence[str] = STARTED
) -> Counted:
    """Each command interrupted at moments from its beginning to its end."""
    imported()
    workshop, n, broken = Workshop(folder), 0, 0
    given = [(asked, HERE) for asked in commands] + [(asked, STARTS) for asked in commands if asked.name in started]
    for asked, way in given:
        whole = _seconds(workshop, asked, way)
        for i in range(moments):
            place = workshop.place()
            found = list(_interrupted(workshop, asked, way, place, whole * i / (moments - 1)))
            n, broken = n + 1, broken + bool(found)
            if found:
                where = f"{asked.name}, {way.name}, after {whole * i / (moments - 1):.3f} s"
                print(f"    {where}: {'; '.join(found)}", file=sys.stderr, flush=True)
            shutil.rmtree(place, ignore_errors=True)
        if os.environ.get("SHOWN"):
            print(f"  {asked.name}, {way.name}: {whole:.1f} s", flush=True)
    return Counted(n, broken, f"{len(commands)} commands were interrupted {n} times")


def _seconds(workshop: Workshop, asked: Command, way: Way) -> float:
    """How long a command takes by itself; of a server, a second more than its start."""
    place, began = workshop.place(), 0.0
    with workshop.started(asked, way, place, free_port()) as copy:
        until_ready(place)
        began = time.monotonic()
        if asked.serves:
            return 2.0
        copy.ended(LIMIT)
    shutil.rmtree(place)
    return time.monotonic() - began


def until_ready(place: Path) -> None:
    """Wait until Ctrl-C is taken care of."""
    end = time.monotonic() + LIMIT
    while not (place / ".ready").exists() and time.monotonic() < end:
        time.sleep(0.001)


def _interrupted(workshop: Workshop, asked: Command, way: Way, place: Path, delay: float) -> Iterator[str]:
    """What is wrong with how a command ended that was interrupted after a delay."""
    with workshop.started(asked, way, place, free_port()) as copy:
        until_ready(place)
        time.sleep(delay)
        copy.interrupt()
        began, code = time.monotonic(), copy.ended(LIMIT)
        at_its_end = time.monotonic() - began < AT_ITS_END
    out, err = said(place)
    if code is None:
        yield "it went on"
    elif code not in STOPPED and not (code == 0 and at_its_end):
        yield f"exit code {code}: {told(place)}"
    yield from (f"{sign}: {told(place)}" for sign in NEVER if sign in err or sign in out)
    yield from left_behind(place)
    if asked.name in REPEATED:
        yield from _again(workshop, asked, place)


def _again(workshop: Workshop, asked: Command, place: Path) -> Iterator[str]:
    """What is wrong when the command is given again, or its run resumed."""
    line, new = asked.line, place / "out"
    if asked.name == "tokenizer train" and new.exists():
        return
    if any(new.glob("step-*")) or (new / "recipe.json").exists():
        line = "resume {out}"
    with workshop.started(Command(asked.name, line), HERE, place, free_port()) as copy:
        code = copy.ended(LIMIT)
    if code != 0:
        yield f"exit code {code} of {line!r} afterwards: {told(place)}"
