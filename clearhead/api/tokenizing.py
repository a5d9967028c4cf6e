"""Which tokenizer a loaded model gets: that of its folder, another, or none."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TypeAlias

from clearhead.errors import UserError
from clearhead.text.tokenizers import Tokenizer

OwnTokenizer: TypeAlias = Tokenizer | Literal["own"] | None
_is_left_out = ContextVar("_is_left_out", default=False)


def chosen_tokenizer(given: OwnTokenizer, read: Callable[[], Tokenizer | None]) -> Tokenizer | None:
    """The given tokenizer, or what `read` returns. Raises UserError, which says how to do without, if it cannot."""
    if not isinstance(given, str):
        return given
    if given != "own":
        raise UserError(f'tokenizer: expected a Tokenizer, None or "own", got {given!r}; try Tokenizer.load(FOLDER)')
    if _is_left_out.get():
        return None
    try:
        return read()
    except UserError as error:
        raise UserError(f"{error}, or open the network alone: load(…, tokenizer=None), --no-tokenizer") from None


@contextmanager
def without_tokenizers() -> Iterator[None]:
    """Models that are loaded inside get no tokenizer of their own."""
    token = _is_left_out.set(True)
    try:
        yield
    finally:
        _is_left_out.reset(token)
