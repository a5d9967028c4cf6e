"""The curves of a run, thinned to what a page can draw. Imports no torch."""

import math

import numpy as np
from pydantic import JsonValue

from clearhead.json_text import JsonObject
from clearhead.live.log import History

MOST = 400
"""Points of a curve at most; a point of a longer log is the mean of consecutive updates."""
KEPT = 0.9
"""What a smoothed value keeps of the point before."""
RECENT = 10.0
"""Seconds over which the present speed is a mean."""


def curves_of(history: History) -> JsonObject:
    """Step, loss, smoothed loss, learning rate, gradient norm and speed of at most MOST points."""
    columns = {name: np.array(values) for name, values in history.columns.items()}
    n = history.n_steps
    edges = np.unique(np.linspace(0, n, min(n, MOST) + 1).astype(np.int64))
    starts, stops = edges[:-1], edges[1:]
    loss = _means(columns["loss"], starts)
    timed = np.isfinite(columns["own"]) & (columns["own"] >= 0)
    tokens = _sums(np.where(timed, columns["n_tokens"], 0.0), starts)
    seconds = _sums(np.where(timed, columns["own"], 0.0), starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        speed = tokens / seconds
    return {
        "step": [int(step) for step in columns["step"][stops - 1]] if n else [],
        "loss": _listed(loss),
        "smooth": _listed(_smoothed(loss)),
        "lr": _listed(columns["lr"][stops - 1] if n else loss),
        "grad_norm": _listed(_means(columns["grad_norm"], starts)),
        "speed": _listed(speed),
    }


def present(history: History) -> JsonObject:
    """The figures of the last update: step, epoch, loss, rate, speed, time so far and time left."""
    if not history.n_steps:
        return {}
    columns = history.columns
    at = {name: values[-1] for name, values in columns.items()}
    return {
        "step": int(at["step"]),
        "epoch": history.epoch + 1,
        "loss": _number(_smoothed(np.array(columns["loss"][-MOST:]))[-1]),
        "lr": _number(at["lr"]),
        "progress": _number(at["progress"]),
        "seconds": _number(at["seconds"]),
        "speed": _number(_speed(history)),
        "left": _number(_left(history)),
    }


def _speed(history: History) -> float:
    """Tokens a second over the last RECENT seconds of updates."""
    tokens = seconds = 0.0
    for own, n in zip(reversed(history.columns["own"]), reversed(history.columns["n_tokens"]), strict=True):
        if math.isfinite(own) and own >= 0:
            tokens, seconds = tokens + n, seconds + own
        if seconds >= RECENT:
            break
    return tokens / seconds if seconds else math.nan


def _left(history: History) -> float:
    """Seconds left at the pace since the run went on for the last time: it may have changed the machine."""
    seconds, progress = history.columns["seconds"], history.columns["progress"]
    first = min(history.since, history.n_steps - 1)
    spent, done = seconds[-1] - seconds[first], progress[-1] - progress[first]
    if not (spent > 0 and done > 0):
        spent, done = seconds[-1], progress[-1]
    return spent / done * (1 - progress[-1]) if done > 0 else math.nan


def _means(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    finite = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return _sums(np.where(finite, values, 0.0), starts) / _sums(finite.astype(float), starts)


def _sums(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return np.add.reduceat(values, starts) if len(starts) else np.empty(0)


def _smoothed(values: np.ndarray) -> np.ndarray:
    """The exponential mean, corrected for its start at 0. Skips values that are not finite."""
    found, total, weight = np.full(len(values), math.nan), 0.0, 0.0
    for i, value in enumerate(values):
        if math.isfinite(value):
            total, weight = KEPT * total + (1 - KEPT) * value, KEPT * weight + 1 - KEPT
            found[i] = total / weight
    return found


def _listed(values: np.ndarray) -> list[JsonValue]:
    return [_number(value) for value in values.tolist()]


def _number(value: float) -> float | None:
    """A number of six digits; None for NaN and infinity, which JSON does not have."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
