"""The main commands in surroundings that nobody wishes for.

One process has imported everything, and each command runs in a copy of it; what decides at Python's start is tried with
processes that start.
"""

import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clearhead.storage.checkpoints import latest
from clearhead.training.metrics_log import MetricsLog
from tests.reliability import Counted
from tests.reliability.copies import Copy, command, imported
from tests.reliability.ways import WAYS, Way
from tests.small_models import PAIRS, model_of
from tests.training.tiny import begin, drive, write_recipe

NEVER = ("Traceback", "Exception ignored", "Fatal Python", "panicked at", "RUST_BACKTRACE", "excepthook", "UnicodeE")
"""What no user is shown."""
LIMIT = 120.0


@dataclass(frozen=True)
class Command:
    """One of the main commands. `{out}` is a new path, `{run}` a new copy of a run, `{in}` what they need."""

    name: str
    line: str
    given: str = ""
    """For standard input."""
    serves: bool = False
    """Whether it goes on, at `{port}`, until Ctrl-C."""


COMMANDS = (
    Command("help", "train --help"),
    Command("summary", "summary gpt2"),
    Command("recipes", "recipes"),
    Command("train", "train {in}/tiny.toml --out {out} --training.steps 4"),
    Command("train lm", "train lm --text {in}/book.txt --out {out} --training.steps 2 --training.max_tokens 64"),
    Command("resume", "resume {run} --steps 6"),
    Command("evaluate", "evaluate {in}/run --source {in}/a.en --target {in}/a.de --json"),
    Command("curve", "curve {in}/run --out {out}.svg"),
    Command("generate", "generate {in}/writer one --max-new-tokens 3"),
    Command("translate", "translate {in}/translator", "one two\nthree\n"),
    Command("check", "check {in}/writer"),
    Command("tokenizer train", "tokenizer train {in}/book.txt --out {out}"),
    Command("tokenizer show", "tokenizer show {in}/writer", "one two"),
    Command("lab", "lab run position-shift --quick --out {out}"),
    Command("capture", "capture {in}/writer --data {in}/book.txt --at decoder.blocks.*.resid_post --out {out}"),
    Command("export", "explore {in}/translator one --export {out}.html"),
    Command("explore", "explore {in}/translator one --no-browser --port {port}", serves=True),
    Command("serve", "serve {in}/writer --port {port}", serves=True),
    Command("watch", "watch {in}/run --no-browser --port {port}", serves=True),
)

STARTED = ("help", "train", "generate", "translate", "tokenizer show", "serve")
"""Commands that are tried where Python has to start, which takes seconds."""


class Workshop:
    """A folder with what the commands need."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.n = folder, 0
        with Copy(lambda: _fill(folder)) as copy:  # Threads that it starts are gone then.
            assert copy.ended(LIMIT) == 0

    def place(self) -> Path:
        """A new folder, with a run that may be resumed."""
        self.n += 1
        place = self.folder / f"place-{self.n}"
        shutil.copytree(self.folder / "run", place / "run")
        return place

    def started(self, asked: Command, way: Way, place: Path, port: int, *, words: Sequence[str] = ()) -> Copy:
        """A command, or other words, that has been started in a folder."""
        places = {name: str(place / name) for name in ("out", "run")} | {"in": str(self.folder), "port": str(port)}
        own = [word.format(**places) for word in asked.line.split()]
        own += [word.replace("{in}", places["in"]) for word in words]
        (place / ".in").write_text(asked.given, encoding="utf-8")
        copy = Copy(lambda: command(own, place, way.prepare, way.variables, starts=way.starts), columns=way.columns)
        if way.columns:
            os.write(copy.terminal, asked.given.encode() + b"\x04")  # Ctrl-D.
        return copy


def _fill(folder: Path) -> None:
    model_of("demo").save(folder / "translator")
    model_of("nano").save(folder / "writer")
    (folder / "book.txt").write_text("".join(f"{line}\n" for line in PAIRS.source * 20), encoding="utf-8")
    run = begin(write_recipe(folder), folder / "run", ("training.steps", 4))
    log = MetricsLog(folder / "run")
    for event in drive(run):
        log(event)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def until_open(port: int, copy: Copy) -> None:
    """Wait until a server answers at the port, or its process ends."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end and not copy.is_over():
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as met:
            if met.getsockname() != met.getpeername():  # Of many tries at a port of this range, one may meet itself.
                return
        time.sleep(0.02)


def faults(code: int | None, asked: Command, way: Way, place: Path) -> Iterator[str]:
    """What is wrong with how a command ended."""
    allowed = {*way.codes} | ({130} if asked.serves else set())
    if code is None:
        yield "it went on"
    elif code not in allowed:
        yield f"exit code {code}"
    out, err = said(place)
    yield from (sign for sign in NEVER if sign in err or sign in out)
    lines = err.splitlines()
    if code == 2 and way.says and not (lines and lines[-1].startswith("error: ") and err.count("error: ") == 1):
        yield "no line that says why"
    yield from left_behind(place)


def left_behind(place: Path) -> Iterator[str]:
    """What is half written there."""
    half = [path.name for path in place.rglob("*") if path.name.startswith((".tmp", ".new", ".bad", "core"))]
    if half:
        yield f"left {', '.join(half)}"
    for run in {path.parent for path in place.glob("*/step-*")}:
        if latest(run) is None:
            yield f"no checkpoint in {run.name} verifies"


def said(place: Path) -> list[str]:
    """What it wrote to standard output and standard error."""
    return [
        path.read_text(encoding="utf-8", errors="backslashreplace") if path.exists() else ""
        for path in (place / ".out", place / ".err")
    ]


def told(place: Path) -> str:
    """What to show of a command that went wrong: its traceback, or its last lines."""
    text = "".join(said(place)).strip()
    _, mark, rest = text.partition("Traceback")
    return (mark + rest)[:3000] if mark else " / ".join(text.splitlines()[-4:])[-600:]


def in_all(folder: Path, ways: Sequence[Way] = WAYS, commands: Sequence[Command] = COMMANDS) -> Counted:
    """Every command in every surrounding."""
    imported()
    workshop, n, broken = Workshop(folder), 0, 0
    for way in ways:
        for asked in commands:
            if way.starts and asked.name not in STARTED:
                continue
            place, port, began = workshop.place(), free_port(), time.monotonic()
            with workshop.started(asked, way, place, port) as copy:
                if asked.serves:
                    until_open(port, copy)
                    copy.interrupt()
                found = list(faults(copy.ended(LIMIT), asked, way, place))
            n, broken = n + 1, broken + bool(found)
            if found:
                last = told(place)
                print(f"    {way.name}, {asked.name}: {'; '.join(found)}: {last}", file=sys.stderr, flush=True)
            if os.environ.get("SHOWN"):
                took = f"{copy.code} {time.monotonic() - began:.1f} s"
                print(f"  {way.name}, {asked.name}: {took}", said(place)[1][-200:].encode(), flush=True)
            shutil.rmtree(place, ignore_errors=True)
    return Counted(n, broken, f"{len(commands)} commands were run {n} times in {len(ways)} environments")
