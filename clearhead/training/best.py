"""Decides which evaluation of a run is the best so far."""

import math

from clearhead.tasks.evaluation import Evaluation
from clearhead.tasks.task import Task
from clearhead.training.events import Evaluated
from clearhead.training.length import Progress


def judged(evaluation: Evaluation, task: Task, at: Progress) -> Evaluated:
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
