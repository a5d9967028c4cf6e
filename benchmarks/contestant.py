"""What a contestant is, and what a turn of it gives."""

import time
from abc import ABC, abstractmethod

from clearhead.config import Config


class Facts(Config):
    """What a contestant says of itself when it is ready."""

    n_parameters: int
    precision: str


class Turn(Config):
    """Some training steps in a row."""

    n_tokens: int
    """Real target tokens: <eos> counts, padding does not."""
    seconds: float
    cpu_seconds: float
    loss: float
    """Of the last step, in nats a token."""
    peak_gb: float
    """Most memory the process has held so far."""


class Contestant(ABC):
    """Trains step after step, over batches in an order that is the same for all."""

    @abstractmethod
    def facts(self) -> Facts:
        """After everything has been built."""

    @abstractmethod
    def prepare(self, n_steps: int) -> None:
        """What need not be timed before the next steps."""

    @abstractmethod
    def steps(self, n_steps: int) -> tuple[int, float]:
        """Forward, loss, backward, clipping, optimizer, n times: real target tokens, and the last loss."""

    def turn(self, n_steps: int) -> Turn:
        """Steps by the clock."""
        self.prepare(n_steps)
        wall, cpu = time.perf_counter(), time.process_time()
        n_tokens, loss = self.steps(n_steps)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return Turn(n_tokens=n_tokens, seconds=wall, cpu_seconds=cpu, loss=loss, peak_gb=peak_gb())


def peak_gb() -> float:
    """Most memory this process has held, in 10^9 bytes; 0 where the system does not say."""
    try:
        import resource
    except ImportError:
        return 0.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
