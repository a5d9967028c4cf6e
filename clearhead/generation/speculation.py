"""Speculative decoding: a pass reads the next token together with guesses of those after it.

A greedy text is the same as without guesses: the search chooses every token as always, from the network's logits, and a
guess only decides whether these logits are there already. So is a sampled one, if the text itself makes the guesses. If
a network does, its guesses are settled by `Sampler.settle`: the tokens have the same probabilities, and the text is
another one, the same for each seed and draft (Leviathan et al. 2023; Chen et al. 2023).
"""

import itertools
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.brief import brief
from clearhead.generation.decoding import Decoding, no_gradients
from clearhead.generation.sampling import History, Sampler, draw, uniform
from clearhead.model import Tokens, Transformer
from clearhead.model.fast.snapshot import Snapshot, watching
from clearhead.trace import watched

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


class NetworkDrafter:
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

        It reads a new text `piece` tokens at a time, and makes no guess before it has read the whole text.
        """
        assert network.decoder is not None
        self.decoding, self.sampler, self.name = Decoding(network), sampler, name
        decoder = network.decoder
        self.vocab_size, self.n_rows, self.device = vocab_size, decoder.lookup.num_embeddings, decoder.device
        self.limit, self.piece = network.decoder.config.max_length, piece
        self.read: list[int] = []
        """The tokens in its cache."""

    def guesses(self, history: History) -> Iterator[Guess]:
        """Yields guesses of the next tokens, each under the assumption that those before it are right.

        Guesses are computed on demand. There may be none.
        """
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
            token = int(draw(shares, [chance]))
            shares = F.pad(shares[0], (0, self.vocab_size - shares.shape[1]))
            return Guess(token, _kind(shares, token), shares)

    def _after(self, n: int, new: list[int]) -> Tensor:
        """Logits after the first n tokens of the cache and these."""
        self.decoding.cut(n)
        self.read = [*self.read[:n], *new]
        return self.decoding.feed(Tokens(torch.tensor([new], device=self.device)))


class LookupDrafter:
    """The text itself: what came after the last few tokens when they came before (Saxena 2023, "Prompt lookup")."""

    def __init__(self) -> None:
        self.after: dict[tuple[int, ...], int] = {}
        """The place behind the latest occurrence of a few tokens."""
        self.n_seen = 0

    def guesses(self, history: History) -> Iterator[Guess]:
        """Yields guesses of the next tokens, as `NetworkDrafter` does."""
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


Drafter = NetworkDrafter | LookupDrafter


def _kind(shares: Tensor, token: int) -> int:
    return min(int(float(shares[token]) * KINDS), KINDS - 1)


def _n_shared(a: list[int], b: list[int]) -> int:
    """The number of tokens with which both begin."""
    n = min(len(a), len(b))
    return n if a[:n] == b[:n] else next(i for i in range(n) if a[i] != b[i])


RECENT = 9
"""The number of newest measurements of a duration whose median counts."""
MEMORY = 0.95
"""Weight of a judged guess, or of a pass, when the next one of its kind is counted."""
FIRST = 0.8
"""Share of right guesses that is assumed before one is judged."""
FRESH = 32
"""After this many passes with guesses, one pass without them measures the time of a token again."""
TRIAL = 6
"""Passes with guesses before they are given up."""
REST = 16, 512
"""Passes without guesses after giving up: at first, and, doubled each time, at most."""


class Pace:
    """Speculation goes on as long as it is quicker than reading tokens one by one.

    One more guess pays if its probability of being right, times the seconds of a token, exceeds the seconds of a guess
    plus those of one more row in a pass. Speculation pauses while tokens take longer with guesses than without them, so
    a text takes little longer than without speculation even if every guess is wrong.
    """

    def __init__(self) -> None:
        self.right: dict[int, float] = defaultdict(lambda: FIRST)
        self.judged: dict[int, float] = defaultdict(lambda: 1.0)
        self.mean = FIRST
        """Share of right ones among all judged guesses."""
        self.drafting: deque[float] = deque(maxlen=RECENT)
        self.rest = REST[0]
        self.n_resting = 0
        self.restart()

    def restart(self) -> None:
        """Forgets how long passes take, because the network has changed."""
        self.single: deque[float] = deque(maxlen=RECENT)
        self.several: deque[tuple[int, float]] = deque(maxlen=RECENT)
        self.n_passes = 0
        """Counts consecutive passes that used guesses."""
        self.seconds = self.tokens = 0.0
        """Seconds and tokens of the latest passes with guesses."""

    def judge(self, kind: int, *, is_right: bool) -> None:
        """Records whether a guess of this kind was right."""
        self.right[kind] = MEMORY * self.right[kind] + is_right
        self.judged[kind] = MEMORY * self.judged[kind] + 1
        self.mean = MEMORY * self.mean + (1 - MEMORY) * is_right
        self.tokens += is_right

    def rightness(self, kind: int) -> float:
        """The share of right guesses among the latest ones of this kind."""
        return self.right[kind] / self.judged[kind]

    def guessed(self, seconds: float) -> None:
        """Records the seconds that one guess took."""
        self.drafting.append(seconds)

    def passed(self, n_rows: int, seconds: float, whole: float) -> None:
        """Records the seconds of a pass over this many tokens, and the seconds `whole` with its guesses."""
        if n_rows == 1:
            self.single.append(seconds)
            return
        self.several.append((n_rows, seconds))
        self.n_passes += 1
        if self.n_passes <= 2:
            self.seconds = self.tokens = 0.0
        if self.n_passes > 1:  # Before the first one, the draft may have had to read a long text.
            self.seconds = MEMORY * self.seconds + whole
            self.tokens = MEMORY * self.tokens + 1

    @property
    def alone(self) -> float:
        """Seconds of a token without guesses."""
        return median(self.single)

    @property
    def row(self) -> float:
        """Seconds of one more token in a pass."""
        if not self.several:
            return 0.0
        return max(0.0, median((seconds - self.alone) / (n - 1) for n, seconds in self.several))

    def begins(self) -> bool:
        """Decides whether the next pass may have guesses."""
        if len(self.single) < 2:
            return False
        if self.n_resting:
            self.n_resting -= 1
            return False
        is_slower = self.n_passes >= TRIAL and (self.seconds > self.tokens * self.alone or not self.pays(1.0))
        if is_slower:
            self.n_resting, self.rest = self.rest, min(2 * self.rest, REST[1])
        elif self.n_passes >= FRESH:
            self.rest = REST[0]
        if is_slower or self.n_passes >= FRESH:
            self.n_passes = 0
            self.single = deque(list(self.single)[-2:], maxlen=RECENT)
            return False
        return True

    def pays(self, chance: float) -> bool:
        """Returns True if one more guess pays, given the probability that all guesses so far are right."""
        if self.n_passes < TRIAL and chance == 1.0:
            return True
        now = min(self.alone, self.seconds / self.tokens) if self.n_passes >= TRIAL else self.alone
        drafting = median(self.drafting) if self.drafting else 0.0
        return chance * self.mean * now > drafting + self.row


MOST = 16
"""Guesses of one pass at most."""
BANDWIDTH, LAYER, ROW = 3e10, 2.5e-4, 0.05
"""A usual processor: bytes of weights it reads a second, seconds of a layer besides, share of it for a further row."""


@dataclass
class Drafts:
    """Counts of speculation for one text."""

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
        """True if the passes of the network are as fast as they will be."""
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

        With `repeats`, guesses do not depend on a clock, since their places decide where drafted samples are settled.
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
        """The logits of a pass that also finds out whether the code of the network may be skipped later."""
        network = self.reader.network
        with watching(network) as code:
            logits = self.reader.logits(read, read.grid[1])
        self.obstacle = code.obstacle
        if self.obstacle is None:
            self.snapshot = Snapshot(network, network.parameters(), code.namespaces)
        return logits

    def _guesses(self, history: History) -> Iterator[Guess]:
        """Yields guesses while they are likely to pay and the text may still grow."""
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
