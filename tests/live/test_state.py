"""What the page says of a run, by what its folder holds."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from clearhead.live.state import Watched
from clearhead.recipe.places import METRICS, OWNER
from clearhead.training.events import Ended, Started
from tests import processes
from tests.live.runs import FINISHED, begun, events, feed

GONE = 2**22 + 1
"""No process has this number."""
HERE = os.getpid()


def state_of(folder: Path) -> Any:
    return Watched(folder).state()


@pytest.mark.parametrize(
    ("some", "process", "kind", "text"),
    [
        ([], HERE, "preparing", "reading and encoding the data"),
        ([], None, "stopped", "before its first step"),
        (events(), HERE, "running", ""),
        (events(), GONE, "stopped", "without a last word"),
        (events(), None, "stopped", "clearhead resume"),
        ([*events(), FINISHED], None, "finished", "after step 20"),
        ([*events(), FINISHED], HERE, "finished", "still at work"),
        ([*events(), Ended(20, 10.0, "no better in 3 evaluations")], None, "finished", "no better in 3 evaluations, "),
        ([*events(), Ended(20, 10.0, "stopped", 2)], None, "stopped", "by a signal after step 20; clearhead resume"),
        ([*events(), FINISHED, Started(20, 1000, "bf16", "cpu")], HERE, "running", ""),
    ],
    ids=range(10),  # Workers name the tests alike, and each has its own process id.
)
def test_status(tmp_path, some, process, kind, text):
    state = state_of(begun(tmp_path / "run", some, process=process))
    assert state["status"] == kind
    assert text in str(state["text"])


def test_a_suspended_process_is_a_pause(tmp_path):
    if not Path("/proc/self/stat").exists():
        pytest.skip("only Linux says whether a process is suspended")
    with processes.started(["sleep", "60"]) as sleeper:
        folder = begun(tmp_path / "run", events(), process=sleeper.pid)
        assert state_of(folder)["status"] == "running"
        sleeper.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)
        assert state_of(folder)["status"] == "paused"


def test_without_an_owner_a_fresh_log_is_of_a_run_that_goes_on(tmp_path):
    """As on a file system without locks."""
    folder = begun(tmp_path / "run", events())
    os.utime(folder / METRICS)
    assert state_of(folder)["status"] == "running"


@pytest.mark.parametrize(("age", "kind"), [(300, "running"), (900, "stopped")])
def test_a_run_of_another_machine_goes_on_while_its_log_is_young(tmp_path, age: int, kind: str):
    folder = begun(tmp_path / "run", events())
    (folder / OWNER).write_text("process 1 on another machine", encoding="utf-8")
    for name in (OWNER, METRICS):
        os.utime(folder / name, (time.time() - age,) * 2)
    assert state_of(folder)["status"] == kind


def test_a_clock_that_went_back_does_not_keep_a_run_alive(tmp_path):
    folder = begun(tmp_path / "run", events())
    os.utime(folder / METRICS, (time.time() + 86400,) * 2)
    assert state_of(folder)["status"] == "stopped"
    os.utime(folder / METRICS)
    assert state_of(folder)["status"] == "running"


def test_state(tmp_path):
    folder = begun(tmp_path / "run", events(), process=HERE)
    watched = Watched(folder)
    state: Any = watched.state()
    now = state["now"]
    assert {name: now[name] for name in ("step", "epoch", "lr", "seconds", "left")} == {
        "step": 20, "epoch": 1, "lr": 0.001, "seconds": 10, "left": 10
    }  # fmt: skip
    assert state["evaluations"] == [
        {"step": step, "scores": {"span_f1": step / 100, "loss": 0.5}, "loss": 0.5, "best": True} for step in (10, 20)
    ]
    assert state["samples"] == [{"source": "a <b> c", "output": "O", "reference": "B-x"}]
    assert (state["unit"], state["limit"], state["problem"]) == ("words", 40, "")
    assert ["data, train", "train.conll"] in state["recipe"]
    assert ["parameters", "1,000, 100 of them trained"] in state["recipe"]
    assert watched.state(str(state["version"])) is None
    assert watched.is_told()
    feed(folder, [FINISHED])
    assert not watched.is_told()
    assert watched.state(str(state["version"])) is not None
    assert watched.is_told()


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"training": {"optimizer": []}, "data": 3}', b"\xff"])
def test_a_damaged_recipe_is_no_reason_to_show_nothing(tmp_path, content: bytes):
    folder = begun(tmp_path / "run", events())
    (folder / "recipe.json").write_bytes(content)
    assert state_of(folder)["now"]["step"] == 20
