"""Yields text piece by piece while it is generated, up to a stop string."""

from collections.abc import Iterable, Iterator, Sequence


def pieces(texts: Iterable[str], stop: Sequence[str] = ()) -> Iterator[str]:
    """The piece that each text adds to the one before it, up to the first of the stop strings.

    Holds back U+FFFD, to which bytes of an unfinished character decode, and a possible beginning of a stop string.
    Joined, the pieces are the last text, or its part before the stop string.
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
    """The index where the end of `text` is a prefix of `word`; the length of `text` if there is none."""
    longest = next((n for n in range(min(len(word), len(text)), 0, -1) if text.endswith(word[:n])), 0)
    return len(text) - longest
