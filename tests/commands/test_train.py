"""What the command does when torchrun starts it again. The rest of `train` and `resume` is in tests/test_cli.py."""

from pathlib import Path

import pytest

from clearhead.cli.train.session import is_restart, start_again
from clearhead.cli.train.train import train
from clearhead.errors import UserError
from clearhead.recipe import read
from clearhead.storage import checkpoints
from clearhead.tasks.registry import validate
from clearhead.training.ranks import ALONE
from clearhead.training.run_folder import RECIPE, begin_folder, with_absolute_paths
from tests.files import put
from tests.shell import Shell
from tests.training.tiny import begin, drive, losses, write_recipe


def test_a_restart_goes_on_from_the_newest_checkpoint(tmp_path):
    recipe, out = write_recipe(tmp_path, steps=6), tmp_path / "run"
    wanted = losses(drive(begin(recipe, out)))
    for path in out.glob("step-*"):
        if checkpoints.step_of(path) > 2:
            checkpoints.discard(path)
    run, _ = start_again(validate(read(str(recipe)), where="tiny"), out, ALONE)
    assert losses(drive(run)) == {step: loss for step, loss in wanted.items() if step > 2}


def test_a_restart_before_the_first_checkpoint_begins_anew(tmp_path):
    recipe, out = write_recipe(tmp_path, steps=2), tmp_path / "run"
    out.mkdir()
    checked = validate(read(str(recipe)), where="tiny")
    begin_folder(out, with_absolute_paths(checked))
    put(out / "metrics.jsonl", '{"kind": "started", "step": 0}\n')
    run, _ = start_again(checked, out, ALONE)
    assert run.progress.step == 0
    assert {path.name for path in out.iterdir()} == {RECIPE}


def test_a_restart_touches_no_other_folder(tmp_path):
    """Nor would the command at first: the folder is not empty."""
    recipe, other = write_recipe(tmp_path, steps=2), tmp_path / "other"
    drive(begin(recipe, other, ("training.seed", 5)))
    notes = tmp_path / "notes"
    notes.mkdir()
    put(notes / "metrics.jsonl", "")
    put(notes / "mine.txt", "keep")
    for folder in (other, notes):
        before = sorted(path.name for path in folder.rglob("*"))
        with pytest.raises(UserError, match="expected a new folder"):
            start_again(validate(read(str(recipe)), where="tiny"), folder, ALONE)
        assert sorted(path.name for path in folder.rglob("*")) == before


def test_restarts_need_a_folder_by_name(tmp_path, monkeypatch):
    assert not is_restart()
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert is_restart()
    with pytest.raises(UserError, match="expected --out") as caught:
        train("lm")
    assert "\n" not in str(caught.value)


def test_a_run_that_cannot_begin_leaves_nothing(shell: Shell):
    assert "nowhere.txt: expected a file, got none" in shell.refused("train", "lm", "--text", "nowhere.txt")
    assert not Path("runs").exists()
