"""The options that several commands share, with their help. Imports no torch."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from clearhead.errors import UserError
from clearhead.progress import tell, watching  # noqa: F401 - for the commands

if TYPE_CHECKING:
    from tqdm import tqdm

    from clearhead.api import Model

QUIET_SECONDS = 3
"""Seconds after which progress is shown."""

Text = str
"""Words for a model, or the name of a column."""
Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Repeated = Annotated[tuple[str, ...], Parameter(negative="", show_default=False, consume_multiple=True)]
Files = Repeated
Named = Annotated[str, Parameter(help="Folder of a model or run, or the name of a model on the Hugging Face hub.")]
Revision = Annotated[str | None, Parameter(help="Branch, tag or commit on the hub.")]
DeviceName = Literal["auto", "cpu", "cuda", "mps"]
Device = Annotated[DeviceName, Parameter(help="Where to compute.")]
Int8 = Annotated[Flag, Parameter(help="Round the weights to eight bits: faster, and nearly the same (CPU only).")]
Int4 = Annotated[
    Flag,
    Parameter(help="Round the weights to four bits: less accurate, and on a CPU quickest for one text at a time."),
]
OneObject = Annotated[Flag, Parameter(help="Print one JSON object on standard output, and nothing else there.")]
Length = Annotated[int | None, Parameter(help="Tokens of a text at most.")]
Tokenize = Literal["auto", "13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab", "flores101", "flores200"]


def check_positive(**options: float | None) -> None:
    """Raises UserError for an option of the command line below 1."""
    for name, value in options.items():
        if value is not None and value < 1:
            option = name.replace("_", "-")
            raise UserError(f"--{option}: expected 1 or more, got {value}; leave it out for the usual one")


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows of a table as lines, with the columns below each other. A row may end early."""
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(max(map(len, rows), default=0))]
    for row in rows:
        yield "  ".join(map(str.ljust, row, widths)).rstrip()


def open_model(name: str, **how: Any) -> "Model":
    """The model of this name, in a process that keeps the memory it frees."""
    from clearhead.api import load
    from clearhead.machine.device import keep_freed_memory

    keep_freed_memory()
    return load(name, **how)


def progress_bar(*, shows: bool = True, **how: Any) -> "tqdm[Any]":
    """Shows on a terminal how far a long loop is, if it takes long."""
    from tqdm import tqdm

    shows = shows and sys.stderr.isatty()
    return tqdm(disable=not shows, delay=QUIET_SECONDS, leave=False, file=sys.stderr, **how)


def given(**options: Any) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


@contextmanager
def progress() -> Iterator[None]:
    """Shows on a terminal how far a long loop is."""
    with progress_bar() as bar:

        def watch(what: str, done: int, n: int) -> None:
            bar.set_description(what, refresh=False)
            bar.total = n
            bar.update(done - bar.n)

        with watching(watch):
            yield
