"""Command lines in texts: does the real application take them? Nothing of them runs."""

import importlib.util
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from pkgutil import resolve_name

from cyclopts import App, CycloptsError
from cyclopts.exceptions import MissingArgumentError

from clearhead.cli.commands import application
from clearhead.errors import UserError
from clearhead.session.recipes import pairs
from clearhead.tasks.registry import field_names

ROOT = Path(__file__).resolve().parent.parent
SHELLS = ("bash", "sh", "")
"""Languages of blocks that may hold command lines; a block without a language holds them where it begins with one."""
BEGINS = re.compile(r"\s*(?:\$ )?(?:\S*/)?(?:clearhead|python3?|torchrun|srun torchrun)\b")
BETWEEN = {"&&", "||", "|", ";", "&"}


def lines(shell: str) -> Iterator[tuple[int, str]]:
    """The commands of a block, each with the number of its first line; a backslash joins it to the next."""
    whole, first = "", 0
    for number, line in enumerate(shell.splitlines()):
        first = first if whole else number
        whole += line.removeprefix("$ ")
        if whole.endswith("\\"):
            whole = f"{whole[:-1]} "
            continue
        if BEGINS.match(whole):
            yield first, whole.strip()
        whole = ""


def programs(line: str) -> Iterator[tuple[str, list[str]]]:
    """The programs of a line: `clearhead`, or the module that `python -m` runs, with their arguments."""
    words = [word for word in shlex.split(line, comments=True) if word != "…"]
    while words:
        end = next((i for i, word in enumerate(words) if word in BETWEEN), len(words))
        one, words = words[:end], words[end + 1 :]
        redirected = next((i for i, word in enumerate(one) if word in ("<", ">")), len(one))
        one = one[:redirected]
        if not one:
            continue
        if Path(one[0]).name == "clearhead":
            yield "clearhead", one[1:]
        elif "-m" in one[1:-1]:
            at = one.index("-m")
            yield one[at + 1], one[at + 2 :]
        elif Path(one[0]).name.startswith("python") and not one[-1].endswith(".py"):
            raise ValueError(f"{shlex.join(one)}: expected python -m MODULE or python FILE.py")


def complaint(line: str, *, whole: bool = True) -> str | None:
    """What is wrong with a line. None means that every command, option and field of a recipe in it exists.

    A line that is not `whole` may leave out what a command needs, as a sentence does that names it.
    """
    try:
        for program, arguments in programs(line):
            if program == "clearhead":
                _parse(application(), arguments, whole=whole)
            elif program == "clearhead_lab.course":
                _parse(resolve_name(f"{program}.__main__:app"), arguments, whole=whole)
            elif not _is_module(program):
                return f"no module {program}"
    except (CycloptsError, UserError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _parse(app: App, arguments: Sequence[str], *, whole: bool) -> None:
    try:
        _, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
    except MissingArgumentError:
        if whole:
            raise
        return
    for name, _ in pairs(bound.arguments.get("changes", ()), options=()):
        known = field_names()
        if name not in known.fields:
            raise UserError(f"--{name}: no such field; did you mean --{known.nearest(name)}?")


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
