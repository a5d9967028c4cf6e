"""Runs one command of the application, and says in one line what went wrong. Imports no torch until a command runs."""

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from clearhead.cli.commands import COMMANDS, application
from clearhead.cli.failures import explained
from clearhead.cli.options import tell
from clearhead.cli.screen import first_screen
from clearhead.errors import Interrupted, UserError

ALONE, EXPLAIN = "--no-tokenizer", "--explain"
"""Options of every command: models open without their tokenizers; how the steps of texts were computed is told.
`train` has an --explain of its own."""


def run(arguments: Sequence[str], *, is_interrupted: Callable[[], bool] = lambda: False) -> int:
    """Run a command; returns its exit code. An error that is a bug of ours is raised.

    `is_interrupted` says whether Ctrl-C was pressed. An error after that counts as a consequence of it.
    """
    n_options = arguments.index("--") if "--" in arguments else len(arguments)
    options, rest = arguments[:n_options], arguments[n_options:]
    explains = EXPLAIN in options and options[0] != "train"
    words = [word for word in options if word not in ("--debug", ALONE) and not (explains and word == EXPLAIN)] + [
        *rest
    ]
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")  # Which is for those that fork; no command does.
    try:
        if not {"--help", "-h", "--version"} & {*options}:
            Path.cwd()  # Raises FileNotFoundError where it was removed; libraries end the process there.
        _check_words(words)
        if words in ([], ["--help"], ["-h"]):
            print(*first_screen(COMMANDS, Path()), sep="\n")
            return 0
        with _around(opens_alone=ALONE in options, explains=explains):
            application(words[0] if words else None)(words, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as raised:
        error = KeyboardInterrupt() if is_interrupted() and not isinstance(raised, Interrupted) else raised
        failure = explained(error)
        if failure is None:
            raise
        message, code = failure
        if "--debug" in options:
            traceback.print_exc()
        if message:
            print(message if code > 128 else f"error: {message}", file=sys.stderr)
        return code
    return 0


def _check_words(words: Sequence[str]) -> None:
    """Raises UserError for a word that is no text: recipes, logs and readers of weights know only names in UTF-8."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError as error:  # A byte that Python could not decode is kept as half a character.
            byte, encoding = ord(word[error.start]) & 0xFF, sys.getfilesystemencoding()
            remedy = "rename the file" if encoding == "utf-8" else "set LC_ALL=C.UTF-8"
            raise UserError(f"{word}: expected text in {encoding}, got the byte 0x{byte:02X}; {remedy}") from None


@contextmanager
def _around(*, opens_alone: bool, explains: bool) -> Iterator[None]:
    """Models open without their tokenizers; how the texts were computed is told in the end."""
    with ExitStack() as blocks:
        if opens_alone:
            from clearhead.api.loading import without_tokenizers

            blocks.enter_context(without_tokenizers())
        if explains:
            from clearhead.generation.paths import explaining

            blocks.enter_context(explaining(tell))
        yield
