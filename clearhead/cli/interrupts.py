"""What Ctrl-C does in a process of the command line.

Until this is imported, Ctrl-C is a traceback. So it imports only what Python has loaded already: `_signal` is `signal`
without its enumerations.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from types import FrameType
    from typing import NoReturn
else:
    import _signal as signal

EXIT_CODE = 128 + signal.SIGINT
SAYS = "stopped by Ctrl-C"


def end_at_once(*, says: str = SAYS) -> None:
    """Ctrl-C ends the process on the spot, with this line.

    An import is no place for KeyboardInterrupt: what is being imported may swallow it, turn it into another error, or
    print a traceback. Neither is the end of the process.
    """

    def handle(_: int, __: "FrameType | None") -> None:
        _end(says)

    if _is_wanted():
        signal.signal(signal.SIGINT, handle)


def raise_outside_imports() -> "Callable[[], bool]":
    """Ctrl-C raises KeyboardInterrupt, as Python's own handler does; during an import it ends the process.

    What is returned says whether it has: a library in C that calls Python may have made another error of it.
    """
    raised = False

    def handle(_: int, frame: "FrameType | None") -> None:
        nonlocal raised
        raised = True
        if _is_import(frame):
            _end(SAYS)
        raise KeyboardInterrupt

    def unraisable(about: "sys.UnraisableHookArgs") -> None:
        # In a destructor or a callback, nobody can catch it.
        if isinstance(about.exc_value, KeyboardInterrupt):
            _end(SAYS)
        sys.__unraisablehook__(about)

    if _is_wanted():
        signal.signal(signal.SIGINT, handle)
        sys.unraisablehook = unraisable
    return lambda: raised


def _is_wanted() -> bool:
    """Whether Ctrl-C ends this process. It does not end a job in the background."""
    return signal.getsignal(signal.SIGINT) != signal.SIG_IGN


def _is_import(frame: "FrameType | None") -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _end(says: str) -> "NoReturn":
    try:  # noqa: SIM105 - contextlib takes time to import
        os.write(2, f"{says}\n".encode() if says else b"")
    except OSError:
        pass
    os._exit(EXIT_CODE)
