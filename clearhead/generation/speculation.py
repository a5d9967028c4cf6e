"""Speculative decoding: a pass reads the next token together with guesses of those after it.

A greedy text is the same as without guesses: the search chooses every token as always, from the network's logits, and a
guess only decides whether these logits are there already. So is a sampled one, if the text itself makes the guesses. If
a network does, its guesses are settled by `Sampler.settle`: the tokens have the same probabilities, and the text is
another one, the same for each seed and draft (Leviathan et al. 2023; Chen et al. 2023).
"""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from clearhead.brief import brief
from clearhead.generation.drafting import Drafter, Guess, NetworkDrafter
from clearhead.generation.pace import Pace
from clearhead.generation.sampling import History
from clearhead.model import Tokens, Transformer
from clearhead.model.fast.snapshot import Snapshot, watching
from clearhead.trace import watched

MOST = 16
"""Guesses of one pass at most."""
BANDWIDTH, LAYER, ROW = 3e10, 2.5e-4, 0.05
"""A usual processor: bytes of weights it reads a second, seconds of a layer besides, share of it for a further row."""


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


class Reader(Protocol):
    """A network that reads one text, and the cache of what it has read."""

    network: Transformer

    @property
    def is_fast(self) -> bool:
        """Whether its passes are as fast as they will be."""
        ...

    @property
    def n_read(self) -> int:
        """Tokens that it has read."""
        ...

    def cut(self, n: int) -> None:
        """Keeps the first n tokens."""
        ...

    def logits(self, tokens: Tokens, last: int) -> Tensor:
        """1 t -> 1 last v: reads tokens; the logits after each of the last."""
        ...


class Speculation:
    """Reads one text's tokens in passes that hold guesses.

    While a trace or an edit watches the network, or code that is not known is in it, a pass reads one token.
    """

    def __init__(
        self,
        reader: Reader,
        drafter: Drafter,
        *,
        limit: int,
        repeats: bool,
        pace: Pace | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        """Begins after the prompt. The text has at most `limit` new tokens. `snapshot` is of code that is known.

        With `repeats` the guesses depend on no clock: where a drafted sample is settled depends on where guesses are.
        """
        self.reader, self.drafter, self.limit = reader, drafter, limit
        self.pace, self.drafts = pace or Pace(), Drafts()
        self.n_read = reader.n_read
        """Cells of the cache that hold the text; guesses follow."""
        self.waiting: deque[tuple[Guess, Tensor]] = deque()
        """Guesses that the cache holds, each with the logits after it."""
        self.snapshot = snapshot
        """What the waiting logits were computed with. There are no guesses before the first pass has shown it."""
        self.obstacle: str | None = None
        self.usual: tuple[float, float] | None = None
        """Usual seconds of a pass and of a guess, in place of a clock's."""
        if isinstance(drafter, NetworkDrafter) and repeats:
            self.usual = _usual_seconds(reader.network), _usual_seconds(drafter.decoding.network)

    @property
    def proposal(self) -> tuple[int, Tensor] | None:
        """A guess of the token after the logits that `feed` gave, and the probabilities, v, that it was drawn from."""
        guess = self.waiting[0][0] if self.waiting else None
        return None if guess is None or guess.shares is None else (guess.token, guess.shares)

    def feed(self, history: History) -> Tensor:
        """The text, 1 t -> 1 v: the logits after its last token, the only one that has not been fed."""
        token = history.ids[:, -1]
        if self.snapshot is not None and not self.snapshot.holds():
            self.waiting.clear()
            self.snapshot = None
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
        return self._pass(token, history)

    def _pass(self, token: Tensor, history: History) -> Tensor:
        self.reader.cut(self.n_read)
        began = time.perf_counter()
        looks = self.snapshot is None and self.obstacle is None and not watched()
        guesses = [] if watched() or self.snapshot is None else list(self._guesses(history))
        drafted = time.perf_counter()
        read = Tokens(torch.cat([token, token.new_tensor([guess.token for guess in guesses])])[None])
        was_fast = self.reader.is_fast
        logits = (self._looked_at(read) if looks else self.reader.logits(read, read.grid[1]))[0]
        now = time.perf_counter()
        if self.usual is not None:
            took = self.usual[0] * (1 + ROW * len(guesses))
            self.pace.passed(len(logits), took, took + len(guesses) * self.usual[1])
        elif self.reader.is_fast != was_fast:
            self.pace.restart()
        else:
            self.pace.passed(len(logits), now - drafted, now - began)
        self.n_read += 1
        self.drafts.n_passes += 1
        self.drafts.n_tokens += 1
        self.drafts.n_guessed += len(guesses)
        self.waiting.extend(zip(guesses, logits[1:, None], strict=True))
        return logits[:1]

    def _looked_at(self, read: Tokens) -> Tensor:
        """A pass that finds out whether the code of the network may run less often than tokens are written."""
        network = self.reader.network
        with watching(network) as code:
            logits = self.reader.logits(read, read.grid[1])
        self.obstacle = code.obstacle
        if self.obstacle is None:
            self.snapshot = Snapshot(network, network.parameters(), code.namespaces)
        return logits

    def _guesses(self, history: History) -> Iterator[Guess]:
        """As many guesses as are likely to pay, and at most as many as the text may still have tokens."""
        most = min(MOST, self.limit - history.n_new - 1)
        if not self.pace.begins():
            return
        guesses = self.drafter.guesses(history)
        chance = 1.0
        for _ in range(most):
            if not self.pace.pays(chance):
                return
            began = time.perf_counter()
            guess = next(guesses, None)
            if guess is None:
                return
            self.pace.guessed(time.perf_counter() - began if self.usual is None else self.usual[1])
            chance *= self.pace.rightness(guess.kind)
            yield guess


def _usual_seconds(network: Transformer) -> float:
    """Seconds of a pass over one row, reckoned from the weights alone."""
    n_bytes = sum(p.numel() * p.element_size() for p in network.parameters())
    return n_bytes / BANDWIDTH + LAYER * sum(stack.n_layers for stack in network.config.stacks.values())
