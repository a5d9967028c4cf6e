"""Runs a document: its command lines and its Python, in a folder of small files and models."""

import io
import os
import re
import shlex
import shutil
import signal
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from clearhead.cli import main
from clearhead.session.recipes import recipe_of
from clearhead_lab.course.commands import SHELLS, lines
from tests import processes
from tests.docs import stand_ins
from tests.docs.blocks import FENCE, Block, blocks

TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("replacements.toml").read_text(encoding="utf-8"))
FIRST_LINE = 120.0
"""Seconds until a server says where it is."""


class Folder:
    """A reader's folder, and what has been done in it."""

    def __init__(self, folder: Path, models: Path, runs: Path, document: str) -> None:
        self.folder, self.models, self.runs = folder, models, runs
        self.space: dict[str, Any] = {}
        stand_ins.write(folder, document)

    def python(self, block: Block, name: str) -> None:
        text = block.text
        for form, new in TABLES["changed_python"].items():
            text = re.sub(form, new, text)
        self.supply(text)
        exec(compile("\n" * (block.line - 1) + text, name, "exec"), self.space)

    def recipe(self, block: Block, document: str) -> None:
        """Writes a recipe as the document has it, with what it leaves out, and validates it."""
        one = TABLES["recipes"][document]
        path = self.folder / one["name"]
        path.write_text(f"{one.get('before', '')}\n{block.text}", encoding="utf-8")
        self.supply(path.read_text(encoding="utf-8"))
        recipe_of(str(path), (), short={}, files={})

    def command(self, line: str) -> None:
        """Runs a line, made small. Raises AssertionError if it fails."""
        words = small(line)
        self.supply(shlex.join(words), line)
        given = words.index("<") if "<" in words else None
        read = self.folder / words[given + 1] if given is not None else Path(os.devnull)
        words = words[: next((i for i, word in enumerate(words) if word in "<>|"), len(words))]
        if is_served(words):
            served(words, self.folder)
        else:
            called(words, read)

    def supply(self, text: str, line: str = "") -> None:
        """Puts what the text names where it looks: runs and checkpoints."""
        for run in re.findall(r"runs/[\w-]+-\d\b", text):
            made = self.folder / run
            if not made.exists() and (kind := made.name.rpartition("-")[0]) in TABLES["runs"]:
                made.parent.mkdir(exist_ok=True)
                shutil.copytree(run_of(kind, self.runs), made)
        for name, kind in checkpoints(line).items():
            made = self.folder / name
            # What another line had there is over: an adapter still names its folder.
            if made.is_symlink() or re.search(rf"(?<![\w/]){re.escape(name)}(?![\w/])", text):
                made.parent.mkdir(parents=True, exist_ok=True)
                made.unlink(missing_ok=True)
                made.symlink_to(self.models / kind)


def checkpoints(line: str) -> dict[str, str]:
    """The kind of model by its name in this line."""
    found = {name: kind for name, kind in TABLES["checkpoints"].items() if isinstance(kind, str)}
    for beginning, more in TABLES["checkpoints"].items():
        if isinstance(more, Mapping) and line.startswith(f"clearhead {beginning}"):
            found |= more
    return found


def small(line: str) -> list[str]:
    """The words of a line after `clearhead`, with fewer steps and less to compute."""
    for form, new in TABLES["changed"].items():
        line = re.sub(form, new, line)
    words = [word for word in shlex.split(line, comments=True) if word != "…"]
    words = words[words.index("clearhead") + 1 :]
    for command, more in TABLES["added"].items():
        if words[: len(command.split())] == command.split():
            for option in re.findall(r"--\S+(?: [^-]\S*)?", more):
                words += [] if option.split()[0] in words else option.split()
    return words


def is_served(words: list[str]) -> bool:
    return any(
        words[: len(command.split())] == command.split() and unless not in words
        for command, unless in TABLES["served"].items()
    )


def called(words: list[str], given: Path = Path(os.devnull)) -> str:
    """What a command prints. Raises AssertionError with its errors if it fails."""
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    try:
        with given.open(encoding="utf-8") as sys.stdin, redirect_stdout(out), redirect_stderr(err):
            main(words)
    except SystemExit as end:
        if end.code:
            raise AssertionError(f"clearhead {shlex.join(words)}\n{err.getvalue()[-2000:]}") from None
    finally:
        sys.stdin = before
    return out.getvalue()


def served(words: list[str], folder: Path) -> None:
    """Starts a server, waits until it says its address, and ends it as Ctrl-C does."""
    command = [sys.executable, "-W", "error::UserWarning", "-m", "clearhead", *words]
    streams: dict[str, Any] = {"stdout": -1, "stderr": -1, "text": True, "cwd": folder}
    with processes.started(command, timeout=FIRST_LINE, **streams) as process:
        first = next((line for line in process.stdout if "http://" in line), "")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        assert first, f"clearhead {shlex.join(words)}\n{errors[-2000:]}"
        assert process.returncode in (0, 130), errors[-2000:]


def run_of(kind: str, folder: Path) -> Path:
    """A run of this kind, trained once."""
    made = folder / kind
    if not made.exists():
        called([*small(f"clearhead {TABLES['runs'][kind]}"), "--out", str(made)])
    return made


def items(text: str) -> Iterator[tuple[int, Block | str]]:
    """Recipes, then Python blocks and command lines of a document in order; of tables, the lines that train."""
    found: list[tuple[int, Block | str]] = []
    for block in blocks(text):
        if block.language == "toml" or (block.language == "python" and not block.text.startswith("# transformers")):
            at = 0 if block.language == "toml" else block.line  # A command before a recipe may read it.
            found.append((at, block))
        elif block.language in SHELLS:
            found += [(block.line + number, line) for number, line in lines(block.text)]
    prose = FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    for row in re.finditer(r"^\|.*`(clearhead train [^`]+)`.*$", prose, re.MULTILINE):
        found.append((prose.count("\n", 0, row.start()) + 1, row[1]))
    yield from sorted(found, key=lambda one: one[0])


def skipped(line: str) -> str | None:
    """Why a line does not run; None if it does."""
    return next((why for beginning, why in TABLES["skipped"].items() if line.startswith(beginning)), None)
