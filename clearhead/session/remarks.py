"""What the end of a run says of it: whether it beats simple methods, was long enough, and what would help."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from clearhead.errors import pasted
from clearhead.json_text import JsonObject
from clearhead.recipe.places import RECIPE
from clearhead.recipe.training import Training
from clearhead.tasks.floors import Floor
from clearhead.training.metrics_log import read_metrics
from clearhead.training.run import Run

FALLS = 0.02
"""The loss still falls if it fell by more than this share in the second half."""
SLIGHT = 0.05
"""A run is long enough if twice the time would lower the loss by less than this share."""
LITTLE = 0.05
"""The share of a run after its best evaluation below which nothing is said of it."""
OVERFIT = 0.7
"""More data would help if the training loss is below this share of the validation loss."""


@dataclass(frozen=True)
class Course:
    """The course of a run, from the events of its log."""

    steps: Sequence[tuple[int, float, float]]
    """Each update with the seconds until then, and its loss."""
    evaluations: Sequence[tuple[int, float, float]]
    """The step of each evaluation, its main score, and the validation loss or NaN."""
    best: int
    """The step of the best evaluation."""

    @classmethod
    def of(cls, events: Sequence[JsonObject], main_score: str) -> Self | None:
        """Reads the events of a log. Returns None unless they have an update and an evaluation."""
        steps, evaluations, best = list[tuple[int, float, float]](), list[tuple[int, float, float]](), 0
        for event in map(dict[str, Any], events):
            if event["kind"] == "stepped":
                steps.append((event["step"], event["seconds"], event["loss"]))
            elif event["kind"] == "evaluated" and main_score in event["scores"]:
                score = event["scores"][main_score]["value"]
                evaluations.append((event["step"], score, event.get("loss", math.nan)))
                best = event["step"] if event["is_best"] else best
        return cls(steps, evaluations, best) if steps and best else None

    def after_best(self) -> float:
        """The seconds of training after the best evaluation."""
        return self.steps[-1][1] - next(seconds for step, seconds, _ in self.steps if step >= self.best)

    def improves(self) -> bool:
        """Returns True if the last evaluation is the best by score and loss, or is the only one and the loss falls."""
        (last, _, loss), before = self.evaluations[-1], [loss for *_, loss in self.evaluations[:-1]]
        if before:
            return self.best == last and not loss > min(before)
        return self.fall() > FALLS

    def fall(self) -> float:
        """The share by which the loss fell in the second half, on validation data if it is known there."""
        half = self.steps[-1][0] / 2
        found = [(step, loss) for step, _, loss in self.evaluations]
        if found[0][0] > half or math.isnan(found[-1][1]):
            found = [(step, loss) for step, _, loss in self.steps]
        some = max(len(found) // 10, 1)
        before, after = ([loss for step, loss in found if step <= most][-some:] for most in (half, 2 * half))
        return 1 - sum(after) / sum(before) if before and sum(before) > 0 else 0.0

    def losses(self) -> tuple[float, float]:
        """The mean loss of the last tenth of the updates, and the validation loss at the end."""
        last = [loss for *_, loss in self.steps[-max(len(self.steps) // 10, 1) :]]
        return sum(last) / len(last), self.evaluations[-1][2]


@dataclass(frozen=True)
class Ending:
    """A run that ended, and what is known of its best model."""

    course: Course
    training: Training
    an_epoch: float
    """Updates of one pass over the data."""
    is_new: bool
    """Whether its network began without a checkpoint."""
    place: str
    """Its folder, as a shell reads it."""

    @classmethod
    def of(cls, run: Run, folder: Path) -> Self | None:
        """The end of a run. None before its first evaluation."""
        recipe: Any = run.files.json[RECIPE]
        course = Course.of(read_metrics(folder), run.task.main_score)
        an_epoch = len(run.task.plan(seed=run.config.seed, epoch=0)) / run.config.accumulate
        about = {"is_new": recipe["model"]["start"] is None, "place": pasted(folder)}
        return None if course is None else cls(course, run.config, an_epoch=an_epoch, **about)

    def remarks(self, floors: Sequence[Floor], value: float, *, higher_is_better: bool) -> Iterator[str]:
        """What there is to say, a line each. `value` is the main score on the examples of the floors."""
        course, (n, seconds, _) = self.course, self.course.steps[-1]
        if course.after_best() > LITTLE * seconds:
            lost = duration(course.after_best())
            yield f"best at step {course.best:,} of {n:,}: the {lost} after it made it no better"
        sign = 1 if higher_is_better else -1
        floor = max(floors, key=lambda one: sign * one.value, default=None)
        is_below = floor is not None and not sign * value > sign * floor.value
        if floor is not None and is_below:
            is_close = floor.interval is not None and floor.interval[0] <= value <= floor.interval[1]
            how = "no better than the floor, but within its interval" if is_close else "below the floor"
            yield f"{how}: {floor.score} {value:.4f}, {floor}"
        fall = course.fall()
        is_far = fall > 2 * SLIGHT and (len(course.evaluations) == 1 or course.improves())
        if is_far:
            times = 2 ** math.ceil(math.log2(fall / SLIGHT))  # Each doubling brings half of the one before.
            yield f"far from trained: the loss fell by {fall:.0%} in the second half of the run"
            yield f"  {duration(seconds * times)} on this machine: {self.longer(times)}"
        if is_below and (helps := [*self.helps(is_far=is_far)]):
            yield "what may help, the likeliest first:"
            yield from (f"  {line}" for line in helps)

    def helps(self, *, is_far: bool) -> Iterator[str]:
        """What would raise the score, by the evidence of this run."""
        if self.course.improves() and not is_far:
            yield f"train longer, for the score still improved: {self.longer(2)}"
        if self.is_new:
            yield "begin with a pretrained model: --model.start NAME"
        train, valid = self.course.losses()
        if train < OVERFIT * valid and not is_far:
            yield f"more data, for the loss is {train:.2f} in training and {valid:.2f} on validation data"

    def longer(self, factor: float) -> str:
        """The command that makes the run so many times as long, by the limit that ended it."""
        n, seconds, _ = self.course.steps[-1]
        done = {"minutes": seconds / 60, "steps": n, "epochs": n / self.an_epoch}
        limits = {name: dict(self.training)[name] for name in done if dict(self.training)[name] is not None}
        name = max(limits, key=lambda one: done[one] / limits[one])
        return f"clearhead resume {self.place} --{name} {math.ceil(done[name] * factor):g}"


def duration(seconds: float) -> str:
    """A time for people."""
    return f"{seconds:.0f} seconds" if seconds < 60 else f"{seconds / 60:.1f} minutes"
