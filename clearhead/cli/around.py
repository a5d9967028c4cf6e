"""What surrounds a command that asks for it, whatever the command."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from clearhead.api.loading import without_tokenizers
from clearhead.cli.options import tell
from clearhead.generation.decoding import explaining


@contextmanager
def around(*, opens_alone: bool, explains: bool) -> Iterator[None]:
    """Models open without their tokenizers; how the texts were computed is told in the end."""
    with ExitStack() as blocks:
        if opens_alone:
            blocks.enter_context(without_tokenizers())
        if explains:
            blocks.enter_context(explaining(tell))
        yield
