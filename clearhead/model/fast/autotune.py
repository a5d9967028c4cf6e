"""Chooses the quickest of several ways to compute something: timed once on a machine, and remembered in a file."""

import os
import time
from collections.abc import Callable, Mapping

import torch

from clearhead.config import Config
from clearhead.machine import tuning_cache

Run = Callable[[], object]
ROUNDS = 5
"""Runs of each way in turn. The quickest counts, because another process can only slow a run down."""
BUDGET = 1.0
"""Seconds that a process spends on timing. What is asked beyond that is the first way, until a later start."""
MARGIN = 0.95
"""The share of the first way's time that another must stay below, for small differences are chance."""

_spent: list[float] = []
"""Seconds that each question took this process."""
_found: dict[tuple[str, int], str] = {}
"""The answers that this process knows, by question and threads."""


class Choice(Config):
    """The way that was quickest."""

    way: str


def autotune(question: str, ways: Mapping[str, Callable[[], Run]]) -> str:
    """The name of the way that is quickest on this machine, or of the first if none is clearly quicker.

    Each way prepares a computation and returns it. It should read more weights than a small cache holds, as a step of
    a network does. A new question is timed, in milliseconds, and the answer is kept for this machine
    (`clearhead.machine.tuning_cache`), so that later starts only read it, unless the machine was too busy.
    """
    if len(ways) == 1:
        return next(iter(ways))
    if (found := recall_tuned(question, ways)) is not None:
        return found
    if sum(_spent) >= BUDGET:
        return _found.setdefault((question, torch.get_num_threads()), next(iter(ways)))
    start = time.perf_counter()
    seconds = time_each({name: prepare() for name, prepare in ways.items()})
    first, best = next(iter(ways)), min(seconds, key=lambda name: seconds[name])
    best = best if seconds[best] < MARGIN * seconds[first] else first
    _found[question, torch.get_num_threads()] = best
    if _is_quiet():
        tuning_cache.keep(Choice(way=best), {"question": question, "ways": [*ways]})
    _spent.append(time.perf_counter() - start)
    return best


def recall_tuned(question: str, ways: Mapping[str, object]) -> str | None:
    """The answer to a question that was timed before, by this process or an earlier one; None for a new one."""
    key = question, torch.get_num_threads()
    if key not in _found and (kept := tuning_cache.recall(Choice, {"question": question, "ways": [*ways]})) is not None:
        _found[key] = kept.way
    found = _found.get(key)
    return found if found in ways else None


def _is_quiet() -> bool:
    """True unless, over the last minute, more threads wanted to run than there are processors."""
    return getattr(os, "getloadavg", lambda: (0.0,))()[0] <= (os.cpu_count() or 1)


@torch.inference_mode()
def time_each(runs: Mapping[str, Run]) -> dict[str, float]:
    """The least seconds of each run, in turn, after one that does not count."""
    # A thread's clock stands still while other processes have the core, but also while it waits for its helpers.
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    least = dict.fromkeys(runs, float("inf"))
    for i in range(ROUNDS + 1):
        for name, run in runs.items():
            start = clock()
            run()
            taken = clock() - start
            least[name] = min(least[name], taken) if i else least[name]
    return least
