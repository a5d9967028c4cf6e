"""What is quickest is timed once on a machine, kept in a file, and never in the way."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from clearhead.machine import tuning_cache
from clearhead.model.fast import autotune as module
from clearhead.model.fast.autotune import Run, autotune, recall_tuned


class Clock:
    """Times that a test decides, and how often it was asked."""

    def __init__(self, **seconds: float) -> None:
        self.seconds, self.asked = seconds, 0

    def __call__(self, runs: dict[str, Run]) -> dict[str, float]:
        self.asked += 1
        return {name: self.seconds[name] for name in runs}


WAYS: dict[str, Callable[[], Run]] = {"packed": lambda: lambda: None, "plain": lambda: lambda: None}


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch) -> Path:
    """A file of probes of its own, and a process that has timed nothing."""
    monkeypatch.setenv(tuning_cache.FILE, str(tmp_path / "probes.json"))
    monkeypatch.setattr(module, "_spent", [])
    monkeypatch.setattr(module, "_is_quiet", lambda: True)
    restart(monkeypatch)
    return tmp_path / "probes.json"


def restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_found", {})


def clock(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> Clock:
    made = Clock(**seconds)
    monkeypatch.setattr(module, "time_each", made)
    return made


@pytest.mark.parametrize(
    ("seconds", "best"),
    [
        ({"packed": 340e-6, "plain": 183e-6}, "plain"),  # Intel, one row by 768 x 2304
        ({"packed": 205e-6, "plain": 451e-6}, "packed"),  # AMD, the same
        ({"packed": 100e-6, "plain": 98e-6}, "packed"),  # chance
    ],
)
def test_the_clock_decides_once_a_machine(seconds: dict[str, float], best: str, monkeypatch):
    first = clock(monkeypatch, **seconds)
    assert recall_tuned("a", WAYS) is None
    assert [autotune("a", WAYS), autotune("a", WAYS), recall_tuned("a", WAYS)] == [best] * 3
    assert first.asked == 1
    restart(monkeypatch)
    again = clock(monkeypatch, packed=1.0, plain=1.0)
    assert autotune("a", WAYS) == best
    assert again.asked == 0, "the second start reads the file"
    restart(monkeypatch)
    monkeypatch.setattr(tuning_cache, "_machine", lambda: {"cpu": "another"})
    assert autotune("a", WAYS) == "packed"
    assert again.asked == 1


def test_a_file_that_cannot_be_written_to_changes_nothing(file: Path, monkeypatch):
    file.mkdir()
    once = clock(monkeypatch, packed=2.0, plain=1.0)
    assert autotune("a", WAYS) == autotune("a", WAYS) == "plain"
    assert once.asked == 1


def test_what_takes_too_long_is_not_timed(monkeypatch):
    monkeypatch.setattr(module, "_spent", [module.BUDGET])
    never = clock(monkeypatch)
    assert autotune("a", WAYS) == "packed"
    assert never.asked == 0
    assert recall_tuned("a", WAYS) == "packed"
    restart(monkeypatch)
    assert recall_tuned("a", WAYS) is None, "a later start times it"


def test_what_other_programs_disturbed_is_timed_again(monkeypatch):
    monkeypatch.setattr(module, "_is_quiet", lambda: False)
    busy = clock(monkeypatch, packed=2.0, plain=1.0)
    assert autotune("a", WAYS) == autotune("a", WAYS) == "plain"
    restart(monkeypatch)
    assert recall_tuned("a", WAYS) is None
    assert busy.asked == 1


def test_the_real_clock_finds_the_smaller_product():
    small, large = torch.ones(8, 8), torch.ones(512, 512)
    ways = {"large": lambda: lambda: large @ large, "small": lambda: lambda: small @ small}
    assert autotune("a", ways) == "small"
