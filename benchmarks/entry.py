"""How every `python -m benchmarks.X` runs."""

import sys
from collections.abc import Callable

from clearhead.errors import UserError


def run_command(command: Callable[..., object], *given: object) -> None:
    """Runs a command line. A mistake of the user's is one line, and Ctrl-C none."""
    try:
        command(*given)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
