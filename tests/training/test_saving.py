"""Shares of a checkpoint, and checkpoints written while training goes on."""

import json
import shutil
import threading
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.errors import NumericError, UserError
from clearhead.storage import checkpoints
from clearhead.storage.checkpoints import Checkpoint
from clearhead.storage.manifest import CorruptCheckpoint
from clearhead.training.events import Saved, Stepped
from clearhead.training.ranks import ALONE, Ranks
from clearhead.training.saving import Saver, share
from clearhead.training.train import train
from tests.training.tiny import Around, drive, go_on, losses, new_run, translation


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but what tells the time."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".safetensors"}


# --- shares ------------------------------------------------------------------------------------------------------


def files() -> Checkpoint:
    tensors = {f"w{i}": torch.full((i + 1, 3), float(i)) for i in range(7)}
    return Checkpoint({"model.safetensors": tensors}, {"train.json": {"step": 4}}, {"tokenizer.json": b"{}"})


def write_shares(run_folder: Path, n: int) -> Path:
    place, temporary = checkpoints.place_of(run_folder, 4), run_folder / ".tmp-step-4"
    checkpoints.open_folder(temporary, place, files().n_bytes)
    shares = [share(files(), Ranks(rank=rank, size=n)) for rank in range(n)]
    entries = [checkpoints.fill_folder(temporary, place, one) for one in shares]
    checkpoints.close_folder(temporary, place, {k: v for one in entries for k, v in one.items()}, step=4)
    return place


@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_shares_are_read_as_one(tmp_path, n: int):
    found, wanted = checkpoints.load(write_shares(tmp_path, n)), files()
    assert found.json == wanted.json
    assert found.raw == wanted.raw
    assert found.tensors.keys() == wanted.tensors.keys()
    for name, tensor in wanted.tensors["model.safetensors"].items():
        assert torch.equal(found.tensors["model.safetensors"][name], tensor)
    assert len(found.tensors["model.safetensors"]) == 7


def test_a_share_that_is_gone_is_seen(tmp_path):
    place = write_shares(tmp_path, 3)
    (place / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CorruptCheckpoint, match="model-00002-of-00003"):
        checkpoints.load(place)


def test_an_index_that_names_what_is_not_there_is_corrupt(tmp_path):
    broken = Checkpoint(
        {"model-00001-of-00001.safetensors": {}}, {"model.safetensors.index.json": {"weight_map": {"w": "x"}}}
    )
    with pytest.raises(CorruptCheckpoint, match=r"index\.json"):
        checkpoints.load(checkpoints.save(tmp_path, 1, broken))


# --- in the background -------------------------------------------------------------------------------------------


def test_background_saves_are_those_at_once_byte_for_byte(tmp_path):
    task = translation()
    settings: dict[str, Any] = {"save_every": 2, "ema": 0.9}
    at_once = list(train(new_run(task, tmp_path / "a", **settings)))
    later = list(train(new_run(task, tmp_path / "b", save_in_background=True, **settings)))
    assert losses(at_once) == losses(later)
    saved = [[event.step for event in events if isinstance(event, Saved)] for events in (at_once, later)]
    assert saved[0] == saved[1] == [1, 2, 4, 6, 8, 10, 12]
    for step in saved[0]:
        name = f"step-{step:08d}"
        assert contents(tmp_path / "a" / name) == contents(tmp_path / "b" / name)
    again = list(train(go_on(task, tmp_path / "b", at=6, out=tmp_path / "c", save_in_background=True, **settings)))
    assert losses(again) == {step: loss for step, loss in losses(at_once).items() if step > 6}


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    """The write is held until two more updates were made: were it waited for, this would not end."""
    go, fill = threading.Event(), checkpoints.fill_folder

    def held(*arguments: Any) -> Any:
        assert go.wait(60)
        return fill(*arguments)

    monkeypatch.setattr(checkpoints, "fill_folder", held)
    seen: list[tuple[type, int]] = []
    for event in train(new_run(translation(), tmp_path, steps=5, save_every=100, save_in_background=True)):
        seen.append((type(event), event.step))
        if isinstance(event, Stepped) and event.step == 3:
            go.set()
    assert seen.index((Saved, 1)) > seen.index((Stepped, 3))
    assert checkpoints.latest(tmp_path) == tmp_path / "step-00000005"


def test_a_full_disk_in_the_background_is_told(tmp_path, monkeypatch):
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "save_file", full)
    with pytest.raises(UserError, match="No space left"):
        list(train(new_run(translation(), tmp_path, save_in_background=True)))
    assert list(tmp_path.iterdir()) == []


def test_what_ends_a_run_does_not_lose_the_checkpoint_before_it(tmp_path):
    saver = Saver(tmp_path, ALONE, 0, shared=False, in_background=True)
    assert list(saver.save(4, files())) == []
    saver.__exit__(NumericError, NumericError("step 5"), None)
    assert checkpoints.latest(tmp_path) == tmp_path / "step-00000004"


def test_a_disk_that_fills_is_told_of_and_keeps_the_newest_and_the_best(tmp_path, monkeypatch, caplog):
    """The disk has room for four checkpoints; the second one is the best."""
    usage, run = namedtuple("usage", "total used free"), tmp_path / "run"
    task = Around(translation(), scores=[1.0, 9.0, 1.0, 1.0, 1.0, 1.0])
    size = 3 * new_run(task).checkpoint().n_bytes  # An optimizer has two numbers for each weight.

    def disk(_: Path) -> Any:
        return usage(0, 0, 2 * size if len(list(run.glob("step-*"))) < 4 else 0)

    monkeypatch.setattr(shutil, "disk_usage", disk)
    drive(new_run(task, run, evaluate_every=2, save_every=2))
    left = sorted(path.name for path in run.glob("step-*"))
    assert left[-1] == "step-00000012"
    assert "step-00000004" in left
    assert len(left) == 4
    assert json.loads((run / "best.json").read_text())["step"] == 4
    assert caplog.messages[0].startswith(f"{run}: up to 12 more checkpoints need ")
    removed = [line.split("run/")[1] for line in caplog.messages[1:]]
    pairs = (("01", "08"), ("02", "10"), ("06", "12"))
    assert removed == [f"step-000000{old}: removed, to make room for step-000000{new}" for old, new in pairs]
