"""A log is read as it grows, whatever a writer or a crash leaves of it."""

import math
from typing import Any

import pytest

from clearhead.live.log import MOST, RunLog, curves_of, present
from clearhead.recipe.places import METRICS
from clearhead.training.events import Started
from tests.live.runs import STARTED, begun, events, feed, stepped


def test_a_log_in_pieces_gives_what_it_gives_at_once(tmp_path):
    folder = begun(tmp_path / "run", events())
    content = (folder / METRICS).read_bytes()
    whole = RunLog(folder).read()
    log = RunLog(tmp_path / "grown")
    (tmp_path / "grown").mkdir()
    assert log.read().n_steps == 0
    for start in range(0, len(content), 37):
        with log.path.open("ab") as file:
            file.write(content[start : start + 37])
        log.read()
    found = log.history
    assert repr(found) == repr(whole)  # NaN is not itself.
    assert (found.n_steps, found.saved, len(found.evaluations), found.problem) == (20, [10, 20], 2, "")


def test_a_half_written_line_waits_and_a_damaged_one_is_named(tmp_path):
    folder = begun(tmp_path / "run", events(3))
    with (folder / METRICS).open("ab") as file:
        file.write(b'{"kind": "stepped", "st')
        file.flush()
        log = RunLog(folder)
        assert (log.read().n_steps, log.history.problem) == (3, "")
        file.write(b"\n")
    feed(folder, [stepped(4)])
    assert log.read().n_steps == 4
    assert f"{folder / METRICS}:5: expected JSON" in log.history.problem


def test_a_resumed_run_replaces_what_came_after_its_checkpoint(tmp_path):
    folder = begun(tmp_path / "run", events(15))
    log = RunLog(folder)
    assert log.read().n_steps == 15
    feed(folder, [Started(10, 1000, "fp32", "cpu"), stepped(11, seconds=100.0), stepped(12, seconds=101.0)])
    found = log.read()
    assert [*found.columns["step"]] == [*range(1, 13)]
    # Two updates of one second each, after nine of half a second.
    assert present(found)["left"] == pytest.approx(40 - 12)
    assert present(found)["speed"] == pytest.approx((9 + 1) * 50 / (9 * 0.5 + 1), rel=1e-4)


def test_long_curves_are_means_and_nan_is_left_out(tmp_path):
    steps = [stepped(i, loss=math.nan if i == 7 else float(i)) for i in range(1, 3 * MOST + 1)]
    folder = begun(tmp_path / "run", [STARTED, *steps])
    curves: Any = curves_of(RunLog(folder).read())
    assert (curves["step"][0], curves["step"][-1], len(curves["step"])) == (3, 3 * MOST, MOST)
    assert curves["loss"][:3] == [2, 5, 8.5]
    assert curves["lr"] == [0.001] * MOST
    assert curves["speed"][1:] == [100.0] * (MOST - 1)
    feed(folder, [stepped(i, loss=math.inf) for i in (1, 2)])
    again: Any = curves_of(RunLog(folder).read())
    assert None not in again["loss"]
