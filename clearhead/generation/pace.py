"""How many guesses pay, by what passes and guesses took so far and by how often guesses were right."""

from collections import defaultdict, deque
from statistics import median

RECENT = 9
"""Measurements of each duration that count, of which the median is taken."""
MEMORY = 0.95
"""Weight of a judged guess, or of a pass, when the next one of its kind is counted."""
FIRST = 0.8
"""Share of right guesses that is assumed before one is judged."""
FRESH = 32
"""Passes with guesses after which one without them measures again what it takes."""
TRIAL = 6
"""Passes with guesses before they are given up."""
REST = 16, 512
"""Passes without guesses after giving up: at first, and, doubled each time, at most."""


class Pace:
    """Speculation goes on as long as it is quicker than reading tokens one by one.

    One more guess pays where its chance to be right, times the seconds that a token takes now, exceeds the seconds of
    a guess and of one more row in a pass. Guesses rest when tokens take longer with them than without. So a text takes
    little longer than without speculation even if every guess is wrong.
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
        """Forget how long passes take: the network has changed."""
        self.single: deque[float] = deque(maxlen=RECENT)
        self.several: deque[tuple[int, float]] = deque(maxlen=RECENT)
        self.n_passes = 0
        """With guesses, in a row."""
        self.seconds = self.tokens = 0.0
        """Of the latest passes with guesses."""

    def judge(self, kind: int, *, is_right: bool) -> None:
        """A guess of this kind was right or wrong."""
        self.right[kind] = MEMORY * self.right[kind] + is_right
        self.judged[kind] = MEMORY * self.judged[kind] + 1
        self.mean = MEMORY * self.mean + (1 - MEMORY) * is_right
        self.tokens += is_right

    def rightness(self, kind: int) -> float:
        """The share of right ones among the latest guesses of this kind."""
        return self.right[kind] / self.judged[kind]

    def guessed(self, seconds: float) -> None:
        """One guess took so long."""
        self.drafting.append(seconds)

    def passed(self, n_rows: int, seconds: float, whole: float) -> None:
        """A pass with this many tokens took so long, and with its guesses `whole`."""
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
        """Whether the next pass may have guesses."""
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
        """Whether to guess once more, if all guesses so far are right with this probability."""
        if self.n_passes < TRIAL and chance == 1.0:
            return True
        now = min(self.alone, self.seconds / self.tokens) if self.n_passes >= TRIAL else self.alone
        drafting = median(self.drafting) if self.drafting else 0.0
        return chance * self.mean * now > drafting + self.row
