"""A run that is stopped before its first checkpoint: each message names a command that works."""

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearhead.cli.train.train import resume, train
from clearhead.errors import Interrupted, UserError
from clearhead.storage import checkpoints
from clearhead.training.metrics_log import read_metrics
from clearhead.training.run_folder import NOTHING, RECIPE, is_free
from clearhead.training.train import StopSignal
from tests.training.tiny import write_recipe


class Kill(BaseException):
    """The process ends here."""


def begin(recipe: Path, out: Path) -> None:
    train(str(recipe), out=out)


def go_on(folder: Path) -> None:
    resume(folder)


def losses(folder: Path) -> list[object]:
    return [event["loss"] for event in read_metrics(folder) if event["kind"] == "stepped"]


def kill() -> None:
    raise Kill


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


# Where it is stopped, from the first that it does to the first checkpoint.
MOMENTS = {
    "reading": "clearhead.runs.prepare_task",
    "network": "clearhead.training.planning.fitting.Fitting.new_network",
    "together": "clearhead.runs.check_ranks",
    "beginning": "clearhead.training.train._begin",
    "log": "clearhead.session.running.note_data_report",
    "update": "clearhead.training.train.update",
    "saving": "clearhead.storage.checkpoints.save_file",
    "sealing": "clearhead.storage.checkpoints.close_folder",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    begin(write_recipe(folder, steps=3), folder / "run")
    return folder / "run"


@pytest.mark.parametrize(
    ("moment", "how"),
    [
        pytest.param(moment, how, marks=[] if i % 2 == j else [pytest.mark.slow])
        for i, moment in enumerate(MOMENTS)
        for j, how in enumerate((kill, ctrl_c))
    ],
)
def test_a_run_stopped_before_its_first_checkpoint_begins_again(
    tmp_path, moment: str, how: Callable[[], None], whole: Path, monkeypatch
):
    recipe, folder = write_recipe(tmp_path, steps=3), tmp_path / "run"

    def stopped(*_: Any, **__: Any) -> None:
        how()
        kill()

    with monkeypatch.context() as patch:
        patch.setattr(MOMENTS[moment], stopped)
        with pytest.raises((Kill, Interrupted)) as caught:
            begin(recipe, folder)
    if isinstance(caught.value, Interrupted):
        assert str(caught.value) == f"stopped; go on with: clearhead resume {folder}"
        assert caught.value.exit_code == 128 + signal.SIGINT
    with pytest.raises(UserError, match=f"; go on with clearhead resume {folder}, or try another --out$"):
        begin(recipe, folder)
    go_on(folder)
    assert losses(folder) == losses(whole)
    assert {path.name for path in folder.iterdir()} == {path.name for path in whole.iterdir()}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_first_step_names_resume(tmp_path, number: signal.Signals, monkeypatch):
    recipe, folder, enter = write_recipe(tmp_path, steps=2), tmp_path / "run", StopSignal.__enter__

    def asked(stop: StopSignal) -> StopSignal:
        enter(stop)
        signal.raise_signal(number)
        return stop

    with monkeypatch.context() as patch:
        patch.setattr(StopSignal, "__enter__", asked)
        with pytest.raises(Interrupted, match=f"^stopped after step 0; go on with: clearhead resume {folder}$"):
            begin(recipe, folder)
    go_on(folder)
    assert len(losses(folder)) == 2


def test_what_was_no_run_yet_can_be_started(tmp_path, monkeypatch):
    recipe, folder = write_recipe(tmp_path, steps=2), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("clearhead.training.run_folder.replace_file", lambda *_: kill())
        with pytest.raises(Kill):
            begin(recipe, folder)
    assert is_free(folder)
    with pytest.raises(UserError, match=r"found none and no recipe\.json; start one .* with clearhead train$"):
        go_on(folder)
    begin(recipe, folder)
    assert len(losses(folder)) == 2


@pytest.mark.parametrize("exists", [False, True])
def test_nothing_stays_of_a_run_that_cannot_begin(tmp_path, exists: bool):
    recipe, folder = write_recipe(tmp_path), tmp_path / "run"
    (tmp_path / "a.de").unlink()
    if exists:
        folder.mkdir()
    with pytest.raises(UserError, match=r"a\.de: expected a file"):
        begin(recipe, folder)
    assert folder.is_dir() == exists
    assert not exists or {path.name for path in folder.iterdir()} <= NOTHING


def test_a_log_that_tells_of_checkpoints_is_never_begun_again(tmp_path):
    """They may be somewhere else: what was learnt is not thrown away."""
    recipe, folder = write_recipe(tmp_path, steps=2), tmp_path / "run"
    begin(recipe, folder)
    log = (folder / "metrics.jsonl").read_bytes()
    for path in folder.glob("step-*"):
        checkpoints.discard(path)
    with pytest.raises(UserError, match=r"run: expected the checkpoint of step 2, of which .* put it back, or start"):
        go_on(folder)
    assert (folder / "metrics.jsonl").read_bytes() == log


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"{}"])
def test_a_damaged_recipe_is_one_line(tmp_path, text: bytes):
    (tmp_path / RECIPE).write_bytes(text)
    with pytest.raises(UserError) as caught:
        go_on(tmp_path)
    assert re.search(r"recipe\.json", str(caught.value))
