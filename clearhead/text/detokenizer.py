"""Decodes a text while it is written: a token at a time, in whole characters, up to a stop string."""

from collections.abc import Generator, Iterable, Sequence

from clearhead.text.tokenizers import Tokenizer

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""The replacement character, to which an unfinished character decodes."""


class Detokenizer:
    """The text of one continuation.

    A token's text depends on those before it: some tokenizers drop the space before the first word of a text, and a
    character may be the bytes of several tokens. So a few tokens before it are decoded with and without it, which
    costs the same however long the text is.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str] = ()) -> None:
        self.tokenizer, self.stop = tokenizer, stop
        self.window, self.n_known = list(prompt), len(prompt)
        self.known = tokenizer.decode(self.window)
        """Text of the window's tokens that are settled."""
        self.settled = self.text = ""
        """The text in whole characters, and the text with an unfinished one."""
        self.shown = 0
        self.end: int | None = None
        """The index at which a stop string begins."""

    def add(self, tokens: Sequence[int]) -> bool:
        """Adds tokens; returns whether the text has reached a stop string."""
        self.window += tokens
        new = self.tokenizer.decode(self.window)[len(self.known) :]
        searched = max(0, len(self.settled) - max(map(len, self.stop), default=0))
        self.text = self.settled + new
        if new and not new.endswith(UNFINISHED):
            self.settled = self.text
            self.window, self.n_known = self.window[self.n_known :], len(self.window) - self.n_known
            self.known = self.tokenizer.decode(self.window)
        starts = [at for word in self.stop if (at := self.text.find(word, searched)) >= 0]
        self.end = min(starts, default=None)
        return self.end is not None

    def take(self, *, last: bool = False) -> str:
        """The text that is ready and was not returned before; with `last`, all the rest.

        Holds back the bytes of an unfinished character, and what may be the beginning of a stop string.
        """
        if self.end is not None:
            safe = self.end
        elif last:
            safe = len(self.text)
        else:
            safe = min([len(self.settled), *(_beginning(self.settled, word) for word in self.stop)])
        piece, self.shown = self.text[self.shown : safe], max(self.shown, safe)
        return piece

    def pieces(self, tokens: Iterable[int]) -> Generator[str, None, None]:
        """The text of the tokens piece by piece, up to a stop string. Takes no token after that."""
        for token in tokens:
            stops = self.add([token])
            if piece := self.take():
                yield piece
            if stops:
                return
        if piece := self.take(last=True):
            yield piece


def _beginning(text: str, word: str) -> int:
    """The index where the end of `text` is a prefix of `word`; the length of `text` if there is none."""
    longest = next((n for n in range(min(len(word), len(text)), 0, -1) if text.endswith(word[:n])), 0)
    return len(text) - longest
