"""The length of a run, and its progress."""

from dataclasses import dataclass

from clearhead.errors import UserError
from clearhead.machine.precision import Arithmetic
from clearhead.recipe.training import MatmulPrecision, Training

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
