"""Implements each command by the library's own calls, with progress on the console. Imports no torch itself."""

import sys

from clearhead.errors import UserError


def tell(text: str) -> None:
    """Prints a message for people on standard error. Standard output is for results."""
    print(text, file=sys.stderr, flush=True)


def check_positive(**options: int | None) -> None:
    """Raises UserError for an option of the command line below 1."""
    for name, value in options.items():
        if value is not None and value < 1:
            option = name.replace("_", "-")
            raise UserError(f"--{option}: expected 1 or more, got {value}; leave it out for the usual one")
