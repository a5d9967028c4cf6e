"""The message and the exit code of a failed command. Imports no torch."""

import os
import sys

from cyclopts import CycloptsError, MissingArgumentError

from clearhead.cli.options import tell
from clearhead.errors import OutOfMemory, UserError, is_memory


def explained(error: BaseException) -> tuple[str, int] | None:
    """The message for an error, in one line, and the exit code; None for a bug of ours."""
    match error:
        case OutOfMemory():
            return str(error), error.exit_code
        case Exception() if is_memory(error):
            return (
                "out of memory; try a lower --training.max_tokens, fewer --beams, shorter lines or a smaller model",
                OutOfMemory.exit_code,
            )
        case UserError():
            return str(error), error.exit_code
        case CycloptsError():
            usage = " ".join(("clearhead", *(error.command_chain or ()), "--help"))
            return str(UserError(" ".join(f"{error} {_help(error)} See {usage}".split()))), 2
        case KeyboardInterrupt():
            return "stopped by Ctrl-C", 130
        case BrokenPipeError():
            return "", 141
        case FileNotFoundError() if error.filename is None:
            return "current folder: expected one that is there, got none; change to another folder", 2
        case OSError():
            place = error.filename or "system"
            return str(UserError(f"{place}: {error.strerror or error}; check the path, its permissions and space")), 2
        case _:
            return None


def _help(error: CycloptsError) -> str:
    """The help of the parameter that a command lacks; nothing for another error."""
    if not isinstance(error, MissingArgumentError) or error.app is None or error.argument is None:
        return ""
    known = error.app.assemble_argument_collection(parse_docstring=True)
    return next((one.parameter.help or "" for one in known if one.name == error.argument.name), "")


def leave_unless(has_ended: bool) -> None:
    """Ends the process at once if a thread still computes, with the message and exit code of the signal.

    For a `finally`. Python's own end would wait for such a thread, or crash under it.
    """
    reason = sys.exception()
    failure = None if reason is None else explained(reason)
    if failure is not None and not has_ended:
        message, code = failure
        tell(message)
        sys.stdout.flush()
        os._exit(code)
