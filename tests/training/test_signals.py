"""Whatever ends a run, going on ends as if nothing had."""

import errno
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from clearhead.api import load
from clearhead.errors import UserError
from clearhead.runs import Keeper, resume
from clearhead.storage import checkpoints
from clearhead.training.events import Ended, Evaluated, Started, Stepped
from clearhead.training.run import Run
from clearhead.training.train import train
from tests import processes
from tests.training.tiny import begin, drive, losses, state, write_recipe

ROOT = Path(__file__).resolve().parent.parent.parent
Whole = tuple[Path, dict[int, str], dict[str, str], Run]


# One process that has read everything, and a copy of it for each job: what takes long is done once.
CHILD = """
import json, os, signal, sys, time
import torch._dynamo  # An optimizer imports it, which takes seconds.
import sacrebleu
import clearhead.cli.commands, clearhead.cli.train.session, clearhead.runs, clearhead.training.consumers
from clearhead.cli import main
from clearhead.tasks.registry import field_names
from clearhead.tasks.translation import Translation
from clearhead.storage import checkpoints

PLACES = {
    "loss": (Translation, "loss"),
    "evaluate": (Translation, "evaluate"),
    "seal": (checkpoints, "seal"),
    "save": (checkpoints, "close_folder"),
}

def signal_at(place, number, count):
    owner, name = PLACES[place]
    function, seen = getattr(owner, name), 0

    def wrapped(*arguments, **names):
        nonlocal seen
        result = function(*arguments, **names)
        seen += 1
        if seen == count:
            os.kill(os.getpid(), number)
        return result

    setattr(owner, name, wrapped)

os.fsync = lambda _: None
field_names()
recipe, jobs = sys.argv[1], json.loads(sys.argv[2])
for place, number, moment, out in jobs:
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            if place != "time":
                signal_at(place, number, moment)
            main(["train", recipe, "--out", out, "--training.accumulate", "2"])
            code = 0
        except SystemExit as end:
            code = end.code or 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    if place == "time":
        time.sleep(moment)
        os.kill(pid, number)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def interrupt(recipe: Path, folder: Path, spots: list[tuple[str, int, float]]) -> list[int]:
    """Exit codes of `clearhead train` with a signal at each place and moment; the runs go to folder/0, 1, ..."""
    jobs = [[*spot, str(folder / str(i))] for i, spot in enumerate(spots)]
    done = processes.run(
        [sys.executable, "-c", CHILD, str(recipe), json.dumps(jobs)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return [int(line) for line in done.stdout.split()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Whole:
    """The recipe, and the losses and last state of a run of it that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    recipe = write_recipe(folder)
    run = begin(recipe, folder / "run", ("training.accumulate", 2))
    found = losses(drive(run))
    return recipe, found, state(run), run


def fresh(whole: Whole, tmp_path: Path) -> Run:
    """The same run in another folder, from the beginning."""
    return begin(whole[0], tmp_path / "run", ("training.accumulate", 2))


def goes_on(folder: Path, whole: Whole) -> int:
    """Resume, check that it ends as the uninterrupted run did, and return the step it went on from."""
    _, wanted, last, uninterrupted = whole
    run, _ = resume(folder)
    step = run.progress.step
    assert losses(drive(run)) == {s: loss for s, loss in wanted.items() if s > step}
    assert state(run) == last
    assert run.progress.best_step == uninterrupted.progress.best_step
    assert uninterrupted.folder is not None
    steps = [{path.name for path in one.glob("step-*")} for one in (uninterrupted.folder, folder)]
    assert steps[0] <= steps[1], "the same checkpoints stay"
    assert not list(folder.glob(".tmp*"))
    load(folder)
    return step


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_signals_save_the_step_they_interrupt_and_kills_cost_what_was_not_saved(tmp_path, whole: Whole):
    """Losses 14 and 15 are the two batches of step 7: 8 of steps 1-4, one of the evaluation, 4 of steps 5 and 6."""
    ends = signal.SIGKILL
    spots: list[tuple[str, int, float]] = [
        ("loss", signal.SIGINT, 14),  # in the middle of step 7
        ("evaluate", signal.SIGTERM, 2),  # at step 8
        ("loss", ends, 11),  # in step 5
        ("seal", ends, 26),  # while the checkpoint of step 6 is written
        ("save", ends, 4),  # the checkpoint of step 6 is there, and nothing else knows
        ("time", ends, 0.65),
    ]
    codes = interrupt(whole[0], tmp_path, spots)
    assert codes[:5] == [130, 143, -ends, -ends, -ends]
    newest = [checkpoints.latest(tmp_path / str(i)) for i in range(len(spots))]
    assert [path.name for path in newest[:2] if path] == ["step-00000007", "step-00000008"]
    assert list((tmp_path / "3").glob(".tmp*")), "killed inside a write"
    assert [goes_on(tmp_path / str(i), whole) for i in range(5)] == [7, 8, 4, 4, 6]
    if newest[5] is not None:
        goes_on(tmp_path / "5", whole)


def test_an_evaluation_that_a_signal_prevented_is_made_up_for(tmp_path, whole: Whole):
    _, wanted, *_ = whole
    before = signal.getsignal(signal.SIGINT)
    run = fresh(whole, tmp_path)
    keeper = Keeper(run)
    for event in train(run):
        keeper(event)
        if isinstance(event, Stepped) and event.step == 4:
            os.kill(os.getpid(), signal.SIGINT)
    assert isinstance(event, Ended)
    assert (event.step, event.reason, event.signal) == (4, "stopped", signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    again, _ = resume(tmp_path / "run")
    events = drive(again)
    assert isinstance(events[0], Started)
    assert isinstance(events[1], Evaluated)
    assert events[1].step == 4
    assert losses(events) == {step: loss for step, loss in wanted.items() if step > 4}


def test_the_second_signal_ends_at_once(tmp_path, whole: Whole):
    run = begin(whole[0], tmp_path / "run")
    events = train(run)
    for event in events:
        if isinstance(event, Stepped) and event.step == 3:
            break
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(SystemExit) as caught:
        os.kill(os.getpid(), signal.SIGINT)
    events.close()  # pyrefly: ignore[missing-attribute]
    assert caught.value.code == 130


def test_a_finished_run_resumed_again_and_again_stays_as_it_is(tmp_path, whole: Whole):
    drive(begin(whole[0], tmp_path / "run"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").glob("step-*/*")}
    for _ in range(3):
        run, _ = resume(tmp_path / "run")
        assert [type(event) for event in drive(run)] == [Started, Ended]
        assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").glob("step-*/*")} == before


def test_a_broken_newest_checkpoint_is_passed_over(tmp_path, whole: Whole):
    run = fresh(whole, tmp_path)
    drive(run)
    weights = tmp_path / "run" / "step-00000012" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    assert goes_on(tmp_path / "run", whole) == 10


def test_a_clock_that_goes_back_changes_nothing(tmp_path, whole: Whole, monkeypatch):
    now = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    monkeypatch.setattr(time, "time_ns", lambda: next(now) * 10**9)
    run = fresh(whole, tmp_path)
    found = drive(run)
    assert losses(found) == whole[1]
    seconds = [event.seconds for event in found if isinstance(event, Stepped)]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0


def test_a_full_disk_is_one_line_and_the_run_goes_on_later(tmp_path, whole: Whole, monkeypatch):
    run = fresh(whole, tmp_path)
    save_file, n_files = checkpoints.save_file, 0

    def full(*arguments: Any, metadata: dict[str, str]) -> None:
        nonlocal n_files
        n_files += 1
        if n_files > 6:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save_file(*arguments, metadata=metadata)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save_file", full)
        with pytest.raises(UserError, match=r"step-00000006: .*No space left.*try freeing space") as caught:
            drive(run)
    assert caught.value.exit_code == 2
    assert goes_on(tmp_path / "run", whole) == 4
