"""Learning-rate schedules: pure functions of the step and of how much of the run is done."""

import math

from clearhead.recipe.training import Constant, Cosine, InverseSqrt, Schedule, WarmupStableDecay


def factor(schedule: Schedule, step: int, progress: float) -> float:
    """The factor of the peak learning rate at `step`: in [0, 1], and 1 at the peak.

    `step` counts updates from 1, and is the one about to be made. `progress` in [0, 1] is the share of the
    run done before it, the larger of the shares of steps and of time, so a run limited by minutes decays in
    time too. `InverseSqrt` is d_model^-0.5 min(step^-0.5, step warmup^-1.5) (Vaswani et al. 2017, equation 3)
    divided by its value at step = warmup, which is `noam_peak`. The warm-up of the others multiplies their
    curve, which starts with the run.
    """
    if step < 1:
        raise ValueError(f"step={step} must count from 1")
    done = min(max(progress, 0.0), 1.0)
    match schedule:
        case InverseSqrt(warmup=warmup):
            return min(step / warmup, math.sqrt(warmup / step))
        case Cosine(warmup=warmup, min_ratio=low):
            return _rise(step, warmup) * (low + (1 - low) * (1 + math.cos(math.pi * done)) / 2)
        case WarmupStableDecay(warmup=warmup, decay_fraction=share, min_ratio=low):
            left = min(1.0, (1 - done) / share)
            return _rise(step, warmup) * (low + (1 - low) * left)
        case Constant(warmup=warmup):
            return _rise(step, warmup)


def noam_peak(d_model: int, warmup: int) -> float:
    """(d_model warmup)^-0.5: the peak learning rate with which `InverseSqrt` is the paper's schedule.

    The base model's 512 and 4000 give 7.0e-4 (Vaswani et al. 2017, equation 3).
    """
    return (d_model * warmup) ** -0.5


def _rise(step: int, warmup: int) -> float:
    return min(1.0, step / warmup) if warmup else 1.0
