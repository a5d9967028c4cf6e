"""Two on one run folder: one works, the other gets one line, and nothing is lost."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from clearhead.api import load
from clearhead.cli.train.train import resume as resume_command
from clearhead.errors import UserError
from clearhead.recipe import read
from clearhead.runs import Keeper, resume, start
from clearhead.session.running import next_folder
from clearhead.storage import checkpoints
from clearhead.tasks.registry import validate
from clearhead.training.events import Event, Stepped
from clearhead.training.metrics_log import MetricsLog, read_metrics
from clearhead.training.ranks import ALONE
from clearhead.training.run import Run
from clearhead.training.run_folder import OWNER, FileLock, lock_folder
from clearhead.training.saving import newest_checkpoint
from clearhead.training.train import train
from tests import processes
from tests.training.tiny import begin, drive, losses, write_recipe


def elsewhere(action: Callable[[], object]) -> object:
    """What another thread gets, which does not own what this one does."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(action).result()


def refused(action: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        elsewhere(action)
    return str(caught.value)


def logged(run: Run, folder: Path, at: int, action: Callable[[], None]) -> list[Event]:
    """Train as the command does; `action` in the middle of it."""
    events, consumers = list[Event](), (MetricsLog(folder), Keeper(run))
    for event in train(run):
        for consume in consumers:
            consume(event)
        events.append(event)
        if isinstance(event, Stepped) and event.step == at:
            action()
    return events


def contents(folder: Path) -> dict[str, bytes]:
    """The weights and the state of the optimizer, of every checkpoint."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}


@pytest.mark.parametrize("at", [1, 12, *(pytest.param(step, marks=pytest.mark.slow) for step in (2, 5))])
def test_a_second_run_is_refused_and_the_first_is_as_if_alone(tmp_path, at: int):
    recipe, folder = write_recipe(tmp_path, keep_last=20), tmp_path / "run"
    alone = drive(begin(recipe, tmp_path / "alone"))
    unfinished = folder / ".tmp-step-00000099-1-ab"

    def intrude() -> None:
        unfinished.mkdir()
        for action in (
            lambda: resume_command(folder),
            lambda: resume(folder),
            lambda: newest_checkpoint(folder, ALONE),
            lambda: list(train(apply_changes(folder, recipe))),
        ):
            assert f"in use by process {os.getpid()} on " in refused(action)
        assert unfinished.is_dir(), "a writer's, who lives"

    events = logged(begin(recipe, folder), folder, at, intrude)
    assert losses(events) == losses(alone)
    assert contents(folder) == contents(tmp_path / "alone")
    steps = [event["step"] for event in read_metrics(folder) if event["kind"] == "stepped"]
    assert steps == list(range(1, 13))
    newest_checkpoint(folder, ALONE)
    assert not unfinished.exists(), "its owner is gone"


def apply_changes(folder: Path, recipe: Path) -> Run:
    """A run that is put together by hand, on a folder that is another's."""
    run, _ = start(validate(read(str(recipe)), where="x"), folder.parent / "third")
    run.folder = folder
    return run


def test_a_reader_goes_on_where_its_checkpoint_is_removed_meanwhile(tmp_path, monkeypatch):
    """By the writer, who has a better one now."""
    drive(begin(write_recipe(tmp_path, steps=2), tmp_path / "run"))
    opened, verify = list[str](), checkpoints.verify

    def removed(folder: Path) -> Any:
        found = verify(folder)
        opened.append(folder.name)
        if len(opened) == 1:
            checkpoints.discard(folder)
        return found

    monkeypatch.setattr(checkpoints, "verify", removed)
    assert load(tmp_path / "run").translate(["one"])
    assert opened[0] == "step-00000002"
    assert opened[-1] == "step-00000001"


HOLDER = """
import sys, time
from pathlib import Path
from clearhead.training.run_folder import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_another_process_is_told_and_a_killed_one_holds_nothing(tmp_path):
    run = tmp_path / "run"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with processes.started([sys.executable, "-c", HOLDER, str(run)], text=True, **pipes) as child:
        assert child.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"run: .* in use by process {child.pid} on .*; wait until it ends"):
            lock_folder(run).__enter__()
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=60)
        assert (run / OWNER).exists(), "it had no time to tidy"
        with lock_folder(run) as is_locked:
            assert is_locked
            assert f"process {os.getpid()} on " in (run / OWNER).read_text(encoding="utf-8")
    assert list(run.iterdir()) == []


def test_a_thread_may_take_its_lock_again(tmp_path):
    with lock_folder(tmp_path):
        with lock_folder(tmp_path / "." / ""):
            pass
        assert "in use by" in refused(lambda: lock_folder(tmp_path).__enter__())
    assert elsewhere(lambda: lock_folder(tmp_path).__enter__())


def test_where_there_are_no_locks_a_run_works_and_removes_nothing(tmp_path, monkeypatch, caplog):
    def none(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    recipe, folder = write_recipe(tmp_path, steps=3), tmp_path / "run"
    monkeypatch.setattr(FileLock, "acquire", none)
    wanted = losses(drive(begin(recipe, folder)))
    assert len(wanted) == 3
    assert "no locks (No locks available); make sure that no other process writes there" in caplog.text
    (folder / ".tmp-step-00000099-1-ab").mkdir()
    resume(folder)
    assert (folder / ".tmp-step-00000099-1-ab").is_dir()


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_folder_that_cannot_be_locked_is_one_line(tmp_path, code: int, monkeypatch):
    def denied(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    drive(begin(write_recipe(tmp_path, steps=2), tmp_path / "run"))
    monkeypatch.setattr(FileLock, "acquire", denied)
    with pytest.raises(UserError, match=rf"run: expected to write it, got {os.strerror(code)}; try"):
        resume(tmp_path / "run")
    assert checkpoints.latest(tmp_path / "run"), "readers need no lock"


def test_no_two_commands_get_the_same_new_folder(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: next_folder(tmp_path / "runs", "lm"), range(40)))
    assert sorted(path.name for path in found) == sorted(f"lm-{i}" for i in range(1, 41))
    assert all(path.is_dir() for path in found)
