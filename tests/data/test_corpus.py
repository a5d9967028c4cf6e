"""Encoded on disk or in memory: the same losses to the bit, and each process reads what is its own."""

import os
from pathlib import Path
from typing import Any

import pytest

from clearhead.data import corpus as module
from clearhead.data.sequences import IdsFile
from clearhead.errors import UserError
from clearhead.recipe import merge
from clearhead.runs import Prepared, resume, start
from clearhead.tasks.registry import validate
from clearhead.tasks.translation import Translation
from clearhead.training.run import Run
from tests.training.test_ranks import rewound
from tests.training.tiny import SMALL, drive, finish, losses, number_pairs, write_pairs

TRAINING = {"steps": 6, "save_every": 3, "evaluate_every": 6, "max_tokens": 60}
TRAINING |= {"precision": "fp32", "matmul_precision": "highest"}


def tables_of(task: str, folder: Path) -> dict[str, Any]:
    tables: dict[str, Any] = {"model": {"stacks": SMALL}, "training": TRAINING, "generation": {"max_new_tokens": 4}}
    if task == "translation":
        data = {"held_out": 4, "train": write_pairs(folder)}
        return merge(tables, {"task": task, "data": data, "tokenizer": {"kind": "words"}, "model": {"preset": "demo"}})
    (folder / "book.txt").write_text("\n".join(number_pairs(99).source), encoding="utf-8")
    documents = "line" if task == "documents" else "file"
    train = {"kind": "text", "paths": [str(folder / "book.txt")], "documents": documents}
    return merge(tables, {"task": "lm", "data": {"train": train, "length": 8}, "model": {"preset": "nano"}})


def begun(tables: dict[str, Any], folder: Path, **data: Any) -> tuple[Run, Prepared]:
    cache = str(folder.parent / "cache")
    return start(validate(merge(tables, {"data": {"cache": cache, **data}}), where="x"), folder)


def contents(folder: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_ino for path in (folder / "cache").glob("*/content.json")}


@pytest.mark.parametrize("task", ["translation", "text", "documents"])
def test_losses_are_equal_to_the_bit_and_what_was_made_is_kept(tmp_path, task: str):
    tables = tables_of(task, tmp_path)
    run, prepared = begun(tables, tmp_path / "memory", storage="memory")
    wanted = finish(run)
    assert not contents(tmp_path)
    found: list[dict[str, int]] = []
    for name in ("first", "second"):
        run, other = begun(tables, tmp_path / name, storage="disk")
        assert losses(drive(run)) == wanted
        assert (other.data.digest, other.data.report) == (prepared.data.digest, prepared.data.report)
        assert other.data.lines()[-1] == f"data: encoded on disk, in {tmp_path / 'cache'} (data.storage)"
        found.append(contents(tmp_path))
    assert found[0] == found[1]
    assert len(found[0]) == 2, "a tokenizer, and the ids"
    rewound(tmp_path / "second", 3)
    assert finish(resume(tmp_path / "second")[0]) == {step: loss for step, loss in wanted.items() if step > 3}
    assert contents(tmp_path) == found[0], "the tokenizer of the checkpoint is the same"


@pytest.mark.parametrize("task", ["translation", "text"])
def test_data_that_changed_are_encoded_anew_and_a_run_that_began_with_others_is_not_resumed(tmp_path, task: str):
    tables = tables_of(task, tmp_path)
    wanted = finish(begun(tables, tmp_path / "run", storage="disk")[0])
    rewound(tmp_path / "run", 3)
    before = contents(tmp_path)
    changed = next(path for path in (tmp_path / "a.de", tmp_path / "book.txt") if path.exists())
    os.utime(changed, (1, 1))
    assert finish(resume(tmp_path / "run")[0]) == {step: loss for step, loss in wanted.items() if step > 3}
    assert len(contents(tmp_path).items() - before.items()) == 1, "in the place of the old ids"
    assert contents(tmp_path).keys() == before.keys()
    changed.write_text(changed.read_text(encoding="utf-8").replace("e", "x"), encoding="utf-8")
    with pytest.raises(UserError, match="the training data changed since this run began"):
        resume(tmp_path / "run")


def test_auto_goes_by_the_size_of_the_files(tmp_path, monkeypatch):
    tables = tables_of("text", tmp_path)
    size = (tmp_path / "book.txt").stat().st_size
    for limit, on_disk in ((size + 1, False), (size, True)):
        monkeypatch.setattr(module, "ON_DISK_FROM", limit)
        run, prepared = begun(tables, tmp_path / f"run-{limit}")
        reading = run.task.train.ids  # pyrefly: ignore[missing-attribute]
        assert isinstance(reading, IdsFile) == on_disk
        assert ("on disk" in prepared.data.storage, bool(contents(tmp_path))) == (on_disk, on_disk)


@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_a_pipe_is_one_line(tmp_path, storage: str):
    tables = tables_of("text", tmp_path)
    (tmp_path / "book.txt").unlink()
    os.mkfifo(tmp_path / "book.txt")
    with pytest.raises(UserError, match=r"book\.txt: expected a file, which is read more than once, got a pipe; write"):
        begun(tables, tmp_path / "run", storage=storage)


def test_a_dataset_is_told_by_its_fingerprint(tmp_path):
    datasets = pytest.importorskip("datasets")
    found: list[int] = []
    for n, name in ((60, "one"), (60, "again"), (50, "other")):
        pairs = number_pairs(n)
        rows = datasets.Dataset.from_dict({"en": pairs.source, "de": pairs.target})
        rows.save_to_disk(str(tmp_path / "saved" if name != "other" else tmp_path / "moved"))
        if name == "other":
            (tmp_path / "saved").rename(tmp_path / "old")
            (tmp_path / "moved").rename(tmp_path / "saved")
        train = {"kind": "dataset", "name": str(tmp_path / "saved"), "source": "en", "target": "de"}
        tables = merge(tables_of("translation", tmp_path), {"data": {"train": train}})
        run, _ = begun(tables, tmp_path / name, storage="disk")
        assert isinstance(run.task, Translation)
        found.append(len(run.task.train.source) + len(run.task.valid.source))
    assert found == [60, 60, 50]
