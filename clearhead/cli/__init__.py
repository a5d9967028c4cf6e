"""The command line. It takes care of Ctrl-C before it imports anything that takes time."""

import sys

from clearhead.cli import interrupts

__all__ = ["main"]

SIGNALLED = 128
"""Exit codes above it are those of signals."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command. A user's mistake is one line on standard error and the right exit code.

    Without `arguments`, the command is what this process is for: its arguments, its signals and its streams are ours.
    """
    if arguments is not None:
        from clearhead.cli.program import run

        if code := run(arguments):
            sys.exit(code)
        return
    interrupts.end_at_once()
    from clearhead.cli import streams
    from clearhead.cli.program import run

    output = streams.prepare()
    try:
        is_interrupted = interrupts.raise_outside_imports()
        code = run(sys.argv[1:], is_interrupted=is_interrupted)
    except KeyboardInterrupt:  # A second one, while the first was being told.
        code = interrupts.EXIT_CODE
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    interrupts.end_at_once(says="")
    if isinstance(output.failure, BrokenPipeError):  # A library that writes may have made something else of it.
        code = streams.READER_LEFT
    if code > SIGNALLED:
        streams.leave(code)
    if code:
        sys.exit(code)
