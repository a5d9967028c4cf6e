"""Limits the length of texts without tokenizing more than necessary."""

from collections.abc import Callable

from pydantic import JsonValue

from clearhead.text.tokenizers import Tokenizer

WIDEST = 256
"""The longest token that counts, in characters. Longer ones exist, but no text consists only of them."""
NARROWEST = 16
"""Characters allowed for each token at least: some tokenizers drop spaces, or read a long word as one token."""
FIRST = 8
"""Characters for each token that are tokenized first. Most texts have fewer, so they are tokenized once."""

Encode = Callable[[str], list[int]]


class TooLong(Exception):
    """A text has too many tokens. The message says how many were found before reading stopped."""


def most_characters(tokenizer: Tokenizer, most_tokens: int) -> int:
    """The most characters of a text with this many tokens."""
    widest = max(map(len, tokenizer.library.get_vocab(with_added_tokens=True)), default=0)
    return most_tokens * min(max(widest, NARROWEST), WIDEST)


def bounded(text: str, encode: Encode, *, most_tokens: int, most_characters: int) -> list[int]:
    """The ids of a text. Raises TooLong if they are too many, at the cost of about as many tokens as are allowed.

    A beginning of the text has about as many tokens as the same part of the whole has. So beginnings of growing
    length are tokenized, until one has twice as many tokens as are allowed.
    """
    if len(text) > most_characters:
        raise TooLong(f"{len(text)} characters")
    size = FIRST * most_tokens
    while size < len(text):
        if len(encode(text[:size])) > 2 * most_tokens:
            raise TooLong(f"more, in {len(text)} characters")
        size *= 2
    ids = encode(text)
    if len(ids) > most_tokens:
        raise TooLong(str(len(ids)))
    return ids


def extent(value: JsonValue) -> int:
    """Characters and members of a JSON value, however deep."""
    match value:
        case str():
            return len(value)
        case list():
            return len(value) + sum(map(extent, value))
        case dict():
            return sum(len(name) + 1 + extent(member) for name, member in value.items())
        case _:
            return 1
