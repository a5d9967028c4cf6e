"""The events of a training run, in the order in which `train` yields them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from clearhead.tasks.evaluation import Evaluation


@dataclass(frozen=True)
class PerformanceOption:
    """A setting that makes a run fast or small."""

    name: str
    value: str
    why: str
    field: str
    """The field of the recipe's training table that sets it."""


@dataclass(frozen=True)
class Started:
    """The run begins, or resumes after `step` updates."""

    step: int
    n_parameters: int
    precision: str
    device: str
    performance_options: tuple[PerformanceOption, ...] = ()
    """The settings of its arithmetic, each with the reason."""
    changes: Mapping[str, JsonValue] = field(default_factory=dict)
    """Fields of the recipe's training table that differ from those before it was resumed, as [before, after]."""
    n_trained: int | None = None
    """Parameters that training changes; None if it changes all."""
    unit: str = "tokens"
    """What `Stepped.n_tokens` counts, such as texts."""
    evaluates: str = ""
    """Which validation examples its evaluations measure, if not all of them."""

    @property
    def size(self) -> str:
        """The number of parameters, and the share that is trained if it is not all."""
        size, n = f"{self.n_parameters:,} parameters", self.n_trained
        is_part = n is not None and n < self.n_parameters
        return f"{size}, {n:,} of them trained ({n / self.n_parameters:.2%})" if is_part else size


@dataclass(frozen=True)
class Stepped:
    """One update."""

    step: int
    epoch: int
    loss: float
    """Mean over the update's tokens, in nats, with label smoothing."""
    lr: float
    """Learning rate; with Muon that of the hidden matrices."""
    grad_norm: float
    n_tokens: int
    seconds: float
    """Time of training so far."""
    progress: float
    """Share of the run done, 0..1."""


@dataclass(frozen=True)
class Skipped:
    """An update that was skipped because its gradient was not finite."""

    step: int
    grad_norm: float


@dataclass(frozen=True)
class Evaluated:
    """Scores and samples after `step` updates."""

    step: int
    evaluation: Evaluation
    is_best: bool
    by_loss: bool = False
    """Whether only its loss makes it the best: its main score equals the previous best."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint is on disk."""

    step: int
    folder: Path


@dataclass(frozen=True)
class Ended:
    """The run is over."""

    step: int
    seconds: float
    reason: str
    signal: int | None = None
    """The signal that stopped the run, if one did."""


Event = Started | Stepped | Skipped | Evaluated | Saved | Ended
