"""What a contestant is, and what a turn of it gives."""

import sys
import time
from abc import ABC, abstractmethod

from benchmarks.contestants.opening import memory
from clearhead.config import Config
from clearhead.recipe.training import MatmulPrecision


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
    def arithmetic(self) -> tuple[str, MatmulPrecision]:
        """fp32 or bf16, and PyTorch's float32_matmul_precision."""

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

    def ceiling(self, size: int) -> float:
        """FLOPs a second of a matrix product of this size in its arithmetic, as `clearhead profile` measures it.

        Asked for after all turns, so that what it imports counts in nobody's memory.
        """
        import torch

        from clearhead.machine.precision import Arithmetic
        from clearhead.training.profile import ceiling

        return ceiling(torch.device("cpu"), Arithmetic(*self.arithmetic()), size=size)


def peak_gb() -> float:
    """Most memory this process has held, in 10^9 bytes; 0 where the system does not say."""
    return memory("VmHWM") / 1e9 if sys.platform == "linux" else 0.0
