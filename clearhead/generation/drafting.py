"""Drafters guess how a text goes on, cheaply. `Speculation` then has the network judge several guesses in one pass."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.brief import brief
from clearhead.generation.decoding import Decoding, no_gradients
from clearhead.generation.sampling import History, Sampler, draw, uniform
from clearhead.model import Tokens, Transformer

KINDS = 10
"""Ranges of a draft network's probabilities whose guesses are counted apart."""
LONGEST = 4
"""Most tokens that `LookupDrafter` compares."""


@dataclass(frozen=True)
class Guess:
    """A token that may come next."""

    __repr__ = brief

    token: int
    kind: int
    """Guesses of one kind are right about equally often."""
    shares: Tensor | None = None
    """v: the probabilities that it was drawn from; None if it was not drawn."""


class Drafter(ABC):
    """Guesses the next tokens of one text."""

    @abstractmethod
    def guesses(self, history: History) -> Iterator[Guess]:
        """The tokens after one row, each as if those before it were right. A guess takes no time before it is asked
        for. There may be none, and they may end.
        """


class NetworkDrafter(Drafter):
    """A smaller network, which chooses tokens by the same settings as the large one.

    (Leviathan et al. 2023, "Fast inference from Transformers via speculative decoding"; Chen et al. 2023)
    """

    def __init__(
        self,
        network: Transformer,
        sampler: Sampler,
        name: tuple[int, int],
        *,
        vocab_size: int,
        piece: int | None = None,
    ) -> None:
        """`name` is that of the text, which decides its chance. The first `vocab_size` tokens may be guessed.

        Of a text that is new to it, it reads `piece` tokens at a time, and guesses nothing until it has read all.
        """
        assert network.decoder is not None
        self.decoding, self.sampler, self.name = Decoding(network), sampler, name
        decoder = network.decoder
        self.vocab_size, self.n_rows, self.device = vocab_size, decoder.lookup.num_embeddings, decoder.device
        self.limit, self.piece = network.decoder.config.max_length, piece
        self.read: list[int] = []
        """The tokens in its cache."""

    def guesses(self, history: History) -> Iterator[Guess]:
        text = history.ids[history.valid].tolist()
        n = min(_n_shared(text, self.read), len(text) - 1)
        new = text[n:]
        if max(new) >= self.n_rows:  # Two tables of one vocabulary may be padded to different lengths.
            return
        if self.piece is not None and len(new) > self.piece:
            self._after(n, new[: self.piece])
            return
        while self.limit is None or n + len(new) <= self.limit:
            guess = self._guess(self._after(n, new), history)
            yield guess
            history = history.append(torch.tensor([guess.token], device=self.device))
            n, new = len(self.read), [guess.token]

    def _guess(self, logits: Tensor, history: History) -> Guess:
        """What would be written if this network were the large one."""
        with no_gradients():
            scores = self.sampler.control(logits[:, : self.vocab_size].float(), history)
            if self.sampler.config.temperature == 0:
                shares, token = scores[0].softmax(-1), int(scores.argmax())
                return Guess(token, _kind(shares, token))
            shares = self.sampler.narrow(scores).softmax(-1)
            # Another random number than the large network's, which must not depend on the guess.
            chance = uniform(self.sampler.config.seed, "guess", *self.name, history.n_new)
            token = int(draw(shares, torch.tensor([chance], device=self.device)))
            shares = F.pad(shares[0], (0, self.vocab_size - shares.shape[1]))
            return Guess(token, _kind(shares, token), shares)

    def _after(self, n: int, new: list[int]) -> Tensor:
        """Logits after the first n tokens of the cache and these."""
        self.decoding.cut(n)
        self.read = [*self.read[:n], *new]
        return self.decoding.feed(Tokens(torch.tensor([new], device=self.device)))


class LookupDrafter(Drafter):
    """The text itself: what came after the last few tokens when they came before (Saxena 2023, "Prompt lookup")."""

    def __init__(self) -> None:
        self.after: dict[tuple[int, ...], int] = {}
        """The place behind the latest occurrence of a few tokens."""
        self.n_seen = 0

    def guesses(self, history: History) -> Iterator[Guess]:
        text = history.ids[history.valid].tolist()
        for end in range(self.n_seen, len(text)):  # What ends before the last token, so that a token follows it.
            for n in range(2, min(LONGEST, end) + 1):
                self.after[tuple(text[end - n : end])] = end
        self.n_seen = len(text)
        for n in range(LONGEST, 1, -1):
            at = self.after.get(tuple(text[-n:])) if n < len(text) else None
            if at is not None:
                for i in itertools.count(at):  # A repetition goes on into the guesses themselves.
                    text.append(text[i])
                    yield Guess(text[i], n)


def _kind(shares: Tensor, token: int) -> int:
    return min(int(float(shares[token]) * KINDS), KINDS - 1)


def _n_shared(a: list[int], b: list[int]) -> int:
    """Tokens at the beginning of both."""
    n = min(len(a), len(b))
    return n if a[:n] == b[:n] else next(i for i in range(n) if a[i] != b[i])
