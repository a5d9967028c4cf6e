"""A step takes the number of threads whose products are quickest, and gives back the process's own."""

import pytest
import torch

from clearhead.generation import complete
from clearhead.generation.fast import threads
from clearhead.generation.fast.threads import threads_of, using
from clearhead.model.fast import autotune
from clearhead.recipe.generation import GenerationConfig
from tests.model import small


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A process of two threads, in which every matrix is worth timing; and the numbers that were set."""
    set_to = [2]
    monkeypatch.setattr(autotune, "_found", {})
    monkeypatch.setattr(autotune, "_spent", [])
    monkeypatch.setattr(threads, "WORTH_PACKING", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: set_to[-1])
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    return set_to


@pytest.mark.parametrize("best", [1, 2])
def test_the_clock_decides(best: int, two: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "time_each", lambda runs: {name: float(name != str(best)) for name in runs})
    network = small.decoder()
    assert threads_of(network, 3, measure=False) == 2, "the process's own, until it is measured"
    assert threads_of(network, 3, measure=True) == best
    assert threads_of(network, 4, measure=False) == best, "rows count in powers of two"
    assert threads_of(network, 9, measure=False) == 2
    complete(network, [[1, 2], [3], [4]], config=GenerationConfig(max_new_tokens=3, temperature=0.0))
    assert (1 in two) == (best == 1)
    assert two[-1] == 2


def test_an_error_gives_the_threads_back(two: list[int]) -> None:
    with pytest.raises(ValueError, match="stop"), using(1):
        raise ValueError("stop")
    assert two == [2, 1, 2]


def test_small_networks_are_not_timed(two: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "WORTH_PACKING", 10**9)
    assert threads_of(small.decoder(), 1, measure=True) == 2
