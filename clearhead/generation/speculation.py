"""Speculative decoding: a pass reads the next token together with guesses of those after it.

The text is the same as without guesses. The search chooses every token as always, from the network's logits, and a
guess only decides whether these logits are there already (Leviathan et al. 2023; Chen et al. 2023).
"""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.brief import brief
from clearhead.generation.decoding import Decoding
from clearhead.generation.drafting import Drafter, Guess
from clearhead.generation.pace import Pace
from clearhead.generation.search import Sampling
from clearhead.model import Tokens
from clearhead.model.cache import GrowingCache
from clearhead.trace import watched

MOST = 16
"""Guesses of one pass at most."""


@dataclass
class Drafts:
    """What speculation did for one text."""

    __repr__ = brief

    n_passes: int = 0
    """Passes of the large network after the prompt."""
    n_tokens: int = 0
    """Tokens that they read, without guesses that were wrong."""
    n_guessed: int = 0
    n_right: int = 0


class Speculation:
    """Reads one text's tokens for a search, in passes that hold guesses.

    While a trace or an edit watches the network, a pass reads one token, as without guesses.
    """

    def __init__(self, decoding: Decoding, drafter: Drafter, search: Sampling) -> None:
        """Begins after the prompt."""
        self.decoding, self.drafter, self.search = decoding, drafter, search
        self.pace, self.drafts = Pace(), Drafts()
        self.n_read = decoding.cache.length
        """Cells of the cache that hold the text; guesses follow."""
        self.waiting: deque[tuple[Guess, Tensor]] = deque()
        """Guesses that the cache holds, each with the logits after it."""

    def feed(self, token: Tensor) -> Tensor:
        """1 -> 1 v: the logits after this token, which continues the text."""
        if self.waiting:
            guess, logits = self.waiting.popleft()
            is_right = guess.token == int(token)
            self.pace.judge(guess.kind, is_right=is_right)
            if is_right:
                self.n_read += 1
                self.drafts.n_tokens += 1
                self.drafts.n_right += 1
                return logits
            self.waiting.clear()
        return self._pass(token)

    def _pass(self, token: Tensor) -> Tensor:
        cache = self.decoding.cache
        assert isinstance(cache, GrowingCache)
        if self.n_read < cache.length:
            cache.cut(self.n_read)
        began = time.perf_counter()
        guesses = [] if watched() else list(self._guesses())
        drafted = time.perf_counter()
        read = Tokens(torch.cat([token, token.new_tensor([guess.token for guess in guesses])])[None])
        was_fast = self.decoding.is_fast
        logits = self.decoding.logits(read, read.grid[1])[0]
        now = time.perf_counter()
        if self.decoding.is_fast != was_fast:
            self.pace.restart()
        else:
            self.pace.passed(len(logits), now - drafted, now - began)
        self.n_read += 1
        self.drafts.n_passes += 1
        self.drafts.n_tokens += 1
        self.drafts.n_guessed += len(guesses)
        self.waiting.extend(zip(guesses, logits[1:, None], strict=True))
        return logits[:1]

    def _guesses(self) -> Iterator[Guess]:
        """As many guesses as are likely to pay, and at most as many as the text may still have tokens."""
        most = min(MOST, self.search.ends.limit - self.search.history.n_new - 1)
        if not self.pace.begins():
            return
        guesses = self.drafter.guesses(self.search.history)
        chance = 1.0
        for _ in range(most):
            if not self.pace.pays(chance):
                return
            began = time.perf_counter()
            guess = next(guesses, None)
            if guess is None:
                return
            self.pace.guessed(time.perf_counter() - began)
            chance *= self.pace.rightness(guess.kind)
            yield guess
