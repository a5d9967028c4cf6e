"""What each command does: the library's own calls, with something to read on the way. Imports no torch itself."""

import sys


def tell(text: str) -> None:
    """To people, on standard error: standard output is for results."""
    print(text, file=sys.stderr, flush=True)
