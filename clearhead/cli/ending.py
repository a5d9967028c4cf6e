"""Ends a command that serves, without waiting for slow threads."""

import os
import sys

from clearhead.cli.failures import explained
from clearhead.cli.options import tell


def leave_unless(has_ended: bool) -> None:
    """Ends the process at once if a thread still computes, with the message and exit code of the signal.

    For a `finally`. Python's own end would wait for such a thread, or crash under it.
    """
    reason = sys.exception()
    told = None if reason is None else explained(reason)
    if told is not None and not has_ended:
        message, code = told
        tell(message)
        sys.stdout.flush()
        os._exit(code)
