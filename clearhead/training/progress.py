"""How long a run is and how much of it is done; its learning rate, and its best evaluation, follow from both."""

import math
from dataclasses import dataclass

from clearhead.errors import UserError
from clearhead.machine.precision import Arithmetic
from clearhead.recipe.training import (
    Constant,
    Cosine,
    InverseSqrt,
    MatmulPrecision,
    Schedule,
    Training,
    WarmupStableDecay,
)
from clearhead.tasks.evaluation import Evaluation
from clearhead.tasks.task import Task
from clearhead.training.events import Evaluated

LIMITS = ("steps", "epochs", "minutes")
"""The fields of `Training` that end a run."""


@dataclass
class Progress:
    """The position of a run: everything that a checkpoint needs besides tensors."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """Batches of this epoch already used."""
    n_tokens: int = 0
    seconds: float = 0.0
    precision: str = ""
    matmul: MatmulPrecision = "highest"
    best_score: float | None = None
    """The best score so far; None if it is NaN, or before the first evaluation."""
    best_loss: float | None = None
    best_step: int | None = None
    evaluations_since_best: int = 0
    evaluated: int = 0
    """Step of the last evaluation."""
    evaluation_seconds: float = 0.0
    """Time that the last evaluation took."""
    skipped: int = 0
    """Consecutive updates that were skipped."""

    @property
    def arithmetic(self) -> Arithmetic:
        """The arithmetic of its steps."""
        return Arithmetic(self.precision, self.matmul)


@dataclass(frozen=True)
class Length:
    """The limits of a run, and how often it evaluates and saves."""

    steps: int | None
    seconds: float | None
    evaluate_every: int
    save_every: int
    evaluation_updates: float = 0.0
    """The number of updates that take about as long as the first evaluation."""

    @classmethod
    def of(cls, config: Training, batches_an_epoch: int, evaluation_tokens: int = 0) -> "Length":
        """The length that a config asks for, counting every epoch like the first. Raises as `require_limit` does.

        A token of an evaluation is taken for half as much work as one of an update, which goes backward too.
        """
        require_limit(config)
        limits = [config.steps] if config.steps is not None else []
        if config.epochs is not None:
            limits.append(max(1, round(config.epochs * batches_an_epoch / config.accumulate)))
        evaluate_every = config.evaluate_every or max(1, batches_an_epoch // config.accumulate)
        return cls(
            steps=min(limits, default=None),
            seconds=None if config.minutes is None else 60 * config.minutes,
            evaluate_every=evaluate_every,
            save_every=config.save_every or evaluate_every,
            evaluation_updates=evaluation_tokens / (config.max_tokens * config.accumulate) / 2,
        )

    def done(self, at: Progress) -> float:
        """Share of the run that is done, 0..1, by the nearest limit.

        A time limit reserves the duration of the previous evaluation, so that the final one ends within the limit. That
        of the first is a guess from the updates.
        """
        by_steps = at.step / self.steps if self.steps is not None else 0.0
        by_time = 0.0
        if self.seconds is not None:
            guess = at.seconds / max(at.step, 1) * self.evaluation_updates
            by_time = at.seconds / (self.seconds - min(at.evaluation_seconds or guess, self.seconds / 2))
        return min(1.0, max(by_steps, by_time))


def require_limit(config: Training) -> None:
    """Raises UserError unless `steps`, `epochs` or `minutes` is set."""
    if all(dict(config)[name] is None for name in LIMITS):
        raise UserError("training: expected a limit, got none; set training.steps, training.epochs or training.minutes")


def record_evaluation(evaluation: Evaluation, task: Task, at: Progress) -> Evaluated:
    """The event of this evaluation. Records in `at` whether it is the best so far.

    The main score decides, and between equal scores the lower loss. So while every model scores the same (BLEU 0 at
    the beginning), the loss decides. A score that consists of smoothing alone counts as 0. NaN is worse than any
    number.
    """
    at.evaluated = at.step
    main, loss = evaluation.score(task.main_score), evaluation.loss
    score = 0.0 if main.is_smoothed else main.value
    before, now = _merit(task, at.best_score, at.best_loss), _merit(task, score, loss)
    by_loss = now > before and now[0] == before[0]
    if is_best := now > before:
        at.best_score, at.best_loss = (x if math.isfinite(x) else None for x in (score, loss))
        at.best_step, at.evaluations_since_best = at.step, 0
    else:
        at.evaluations_since_best += 1
    return Evaluated(at.step, evaluation, is_best, by_loss)


def _merit(task: Task, score: float | None, loss: float | None) -> tuple[float, float]:
    """The main score and the loss, each with larger values for better ones."""
    values = (score if task.higher_is_better or score is None else -score, None if loss is None else -loss)
    first, second = (x if x is not None and math.isfinite(x) else -math.inf for x in values)
    return first, second


def factor(schedule: Schedule, step: int, progress: float) -> float:
    """The factor of the peak learning rate at `step`: in [0, 1], and 1 at the peak.

    `step` counts updates from 1, and is the one about to be made. `progress` in [0, 1] is the share of the
    run done before it, the larger of the shares of steps and of time, so a run limited by minutes decays in
    time too. `InverseSqrt` is d_model^-0.5 min(step^-0.5, step warmup^-1.5) (Vaswani et al. 2017, equation 3)
    divided by its value at step = warmup, which is `noam_peak`. The warm-up of the others multiplies their
    curve, which starts with the run.
    """
    match schedule:
        case InverseSqrt(warmup=warmup):
            return min(step / warmup, math.sqrt(warmup / step))
        case Cosine(warmup=warmup, min_ratio=low):
            return _rise(step, warmup) * (low + (1 - low) * (1 + math.cos(math.pi * progress)) / 2)
        case WarmupStableDecay(warmup=warmup, decay_fraction=share, min_ratio=low):
            left = min(1.0, (1 - progress) / share)
            return _rise(step, warmup) * (low + (1 - low) * left)
        case Constant(warmup=warmup):
            return _rise(step, warmup)


def _rise(step: int, warmup: int) -> float:
    return min(1.0, step / warmup) if warmup else 1.0
