"""What happens in a training run, in order, as `train` tells it."""

from dataclasses import dataclass
from pathlib import Path

from clearhead.tasks.task import Evaluation


@dataclass(frozen=True)
class Lever:
    """Something that makes a run fast or small."""

    name: str
    value: str
    why: str
    field: str
    """Of the recipe's training table: what sets it."""


@dataclass(frozen=True)
class Started:
    """The run begins, or goes on after `step` updates."""

    step: int
    n_parameters: int
    precision: str
    device: str
    levers: tuple[Lever, ...] = ()
    """How it computes, and why so."""


@dataclass(frozen=True)
class Stepped:
    """One update."""

    step: int
    epoch: int
    loss: float
    """Mean over the update's tokens, in nats, label smoothing included."""
    lr: float
    """Factor on the optimizer's peak learning rates."""
    grad_norm: float
    n_tokens: int
    seconds: float
    """Time of training so far."""
    progress: float
    """Share of the run done, 0..1."""


@dataclass(frozen=True)
class Skipped:
    """An update left out because its gradient was not finite."""

    step: int
    grad_norm: float


@dataclass(frozen=True)
class Evaluated:
    """Figures and samples after `step` updates."""

    step: int
    evaluation: Evaluation
    is_best: bool
    by_loss: bool = False
    """Whether it is the best one because of its loss: its main score is no better than the best before."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint is on disk."""

    step: int
    folder: Path


@dataclass(frozen=True)
class Ended:
    """The run is over, and why."""

    step: int
    seconds: float
    reason: str
    signal: int | None = None
    """The signal that asked for it, if one did."""


Event = Started | Stepped | Skipped | Evaluated | Saved | Ended
