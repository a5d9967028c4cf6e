"""Chooses the quickest of several ways to compute something: timed once on a machine, and remembered in a file."""

import json
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

from clearhead.errors import UserError
from clearhead.json_text import parse

Run = Callable[[], object]
ROUNDS = 5
"""Runs of each way in turn, of which the quickest counts: another process can only slow a run down."""
BUDGET = 0.7
"""Seconds that a process spends on timing. What is asked beyond that is the first way, until a later start."""
MARGIN = 0.95
"""The share of the first way's time that another must stay below, for small differences are chance."""

_spent: list[float] = []
"""Seconds that each question took this process."""


def quickest(question: str, ways: Mapping[str, Callable[[], Run]]) -> str:
    """The name of the way that is quickest on this machine, or of the first if none is clearly quicker.

    Each way prepares a computation and returns it. It should read more weights than a small cache holds, as a step of
    a network does. A new question is timed, in milliseconds, and the answer is kept in a file of the user's cache
    folder, with processor, torch version and threads: later starts only read it. A folder that cannot be written to
    changes nothing but that.
    """
    if len(ways) == 1:
        return next(iter(ways))
    if (found := answered(question, ways)) is not None:
        return found
    if sum(_spent) >= BUDGET:
        return next(iter(ways))
    start = time.perf_counter()
    seconds = timed({name: prepare() for name, prepare in ways.items()})
    first, best = next(iter(ways)), min(seconds, key=lambda name: seconds[name])
    best = best if seconds[best] < MARGIN * seconds[first] else first
    _keep(_key(question), best)
    _spent.append(time.perf_counter() - start)
    return best


def answered(question: str, ways: Mapping[str, object]) -> str | None:
    """The answer to a question that was timed before, by this process or an earlier one; None for a new one."""
    found = _known().get(_key(question))
    return found if found in ways else None


@torch.inference_mode()
def timed(runs: Mapping[str, Run]) -> dict[str, float]:
    """The least seconds of each run, in turn, after one that does not count."""
    least = dict.fromkeys(runs, float("inf"))
    for i in range(ROUNDS + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            taken = time.perf_counter() - start
            least[name] = min(least[name], taken) if i else least[name]
    return least


def _key(question: str) -> str:
    return f"{_machine()}, {torch.get_num_threads()} threads: {question}"


@cache
def _machine() -> str:
    """The processor, its instruction set as PyTorch uses it, and PyTorch's version."""
    processor = platform.processor() or platform.machine()
    with suppress(OSError):
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        fields = dict(re.findall(r"^(cpu family|model|model name)\s*: (.*)$", about, re.MULTILINE))
        processor = " ".join(fields.get(name, "") for name in ("model name", "cpu family", "model")) or processor
    limits = " ".join(os.environ.get(name, "") for name in ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")).strip()
    return ", ".join(filter(None, (processor, torch.backends.cpu.get_cpu_capability(), limits, torch.__version__)))


def kept_in() -> Path:
    """The file of what was chosen."""
    folder = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(folder).expanduser() / "clearhead" / "products.json"


@cache
def _known() -> dict[str, str]:
    """What this process knows, by machine and question; the file is read once."""
    return _read()


def _read() -> dict[str, str]:
    """What earlier processes kept; nothing where the file is missing or damaged: it is timed again."""
    with suppress(OSError, UserError, RuntimeError):
        found = parse(kept_in().read_bytes(), str(kept_in()))
        if isinstance(found, dict):
            return {key: way for key, way in found.items() if isinstance(way, str)}
    return {}


def _keep(key: str, way: str) -> None:
    """Add an answer to the file, which another process may be writing too: the last complete one stays."""
    _known()[key] = way
    with suppress(OSError, RuntimeError):
        file = kept_in()
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, suffix=".json")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(_read() | _known(), stream, indent=1, sort_keys=True)
            Path(name).replace(file)
        except OSError:
            Path(name).unlink(missing_ok=True)
