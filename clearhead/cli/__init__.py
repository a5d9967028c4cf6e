"""The command line: what there is to say, and where it goes. Imports no torch until a command runs."""

import os
import sys
import traceback

from clearhead.cli import models, planning, training, use
from clearhead.cli.app import app
from clearhead.commands.failures import explained

__all__ = ["app", "main", "models", "planning", "training", "use"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user's mistake is one line on stderr and the right exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    n_options = words.index("--") if "--" in words else len(words)
    debug = "--debug" in words[:n_options]
    words = [word for word in words[:n_options] if word != "--debug"] + words[n_options:]
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")  # Which is for those that fork; no command does.
    try:
        app(words, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        told = explained(error, next((word for word in words if word in app), ""))
        if told is None:
            raise
        if isinstance(error, OSError) and error.filename is None:
            # Nobody reads on, or nothing more can be written: what is still in the buffer must not raise again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        message, code = told
        if debug:
            traceback.print_exc()
        if message:
            print(message if code > 128 else f"error: {message}", file=sys.stderr)
        sys.exit(code)
