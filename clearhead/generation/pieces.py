"""Text as it is shown while it is being written: piece by piece, up to a stop string."""

from collections.abc import Iterable, Iterator, Sequence


def pieces(texts: Iterable[str], stop: Sequence[str] = ()) -> Iterator[str]:
    """The piece that each text adds to the one before it, up to the first of the stop strings.

    Held back until it is clear what they are: U+FFFD, to which bytes of an unfinished character decode, and what may
    be the beginning of a stop string. Joined, the pieces are the last text, or its part before the stop string.
    """
    shown, text = 0, ""
    for text in texts:
        if (end := first(text, stop)) is not None:
            if end > shown:
                yield text[shown:end]
            return
        whole = text.rstrip("\N{REPLACEMENT CHARACTER}")
        safe = min([len(whole), *(beginning(whole, word) for word in stop)])
        if safe > shown:
            yield text[shown:safe]
            shown = safe
    if shown < len(text):
        yield text[shown:]


def first(text: str, words: Sequence[str]) -> int | None:
    """The index of the first occurrence of any word; None if there is none."""
    return min((at for word in words if (at := text.find(word)) >= 0), default=None)


def beginning(text: str, word: str) -> int:
    """The index where a prefix of `word` begins that ends `text`; the length of `text` if there is none."""
    longest = next((n for n in range(min(len(word), len(text)), 0, -1) if text.endswith(word[:n])), 0)
    return len(text) - longest
