"""Room for checkpoints: told before it runs out, and made when it has."""

import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from clearhead.recipe.places import BEST
from clearhead.storage import checkpoints
from clearhead.storage.checkpoints import Checkpoint, make_room, save, shortage, step_of

Usage = namedtuple("Usage", "free")
SIZE = 40_000


def run_of(folder: Path, n: int) -> list[Path]:
    tensors = {"model.safetensors": {"w": torch.zeros(SIZE // 4)}}
    return [save(folder, step, Checkpoint(tensors=tensors, json={}, raw={})) for step in range(1, n + 1)]


def steps(folder: Path) -> list[int]:
    return sorted(step_of(path) for path in folder.glob("step-*"))


@pytest.mark.parametrize("enough", range(6))
@pytest.mark.parametrize(("kept", "named", "left"), [((), None, [5]), ((2,), None, [2, 5]), ((), 1, [1, 5])])
def test_the_oldest_go_until_there_is_room(
    tmp_path,
    monkeypatch,
    enough: int,
    kept: tuple[int, ...],
    named: int | None,
    left: list[int],
):
    """But the newest, the best and those to keep, even where they leave too little."""
    paths = run_of(tmp_path, 5)
    if named is not None:
        (tmp_path / BEST).write_text(f'{{"checkpoint": "{paths[named - 1].name}"}}', encoding="utf-8")
    monkeypatch.setattr(checkpoints, "has_space", lambda folder, _: len(steps(folder)) <= enough)
    removed = make_room(tmp_path, SIZE, keep=kept)
    removable = [step for step in range(1, 6) if step not in left]
    n = max(0, 5 - max(enough, len(left)))
    assert [step_of(path) for path in removed] == removable[:n]
    assert steps(tmp_path) == sorted({*left, *removable[n:]})


def test_a_shortage_is_told_from_one_checkpoint_too_many_on(tmp_path, monkeypatch):
    *_, newest = run_of(tmp_path, 2)
    size = sum(path.stat().st_size for path in newest.iterdir())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(3 * size))
    assert shortage(tmp_path, newest, 5) == ""
    assert "up to 4 more checkpoints need" in shortage(tmp_path, newest, 6)
