"""Implements each command by the library's own calls, with progress on the console. Imports no torch itself."""

import sys


def tell(text: str) -> None:
    """Prints a message for people on standard error. Standard output is for results."""
    print(text, file=sys.stderr, flush=True)
