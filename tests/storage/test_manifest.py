"""A checkpoint that is not byte for byte what was written is refused, and the file at fault is named."""

import os
import random
import shutil
from pathlib import Path

import pytest
import torch

from clearhead.errors import UserError
from clearhead.storage import manifest
from clearhead.storage.checkpoints import Checkpoint, load, save
from clearhead.storage.manifest import CorruptCheckpoint, verify


@pytest.fixture
def folder(tmp_path) -> Path:
    files = Checkpoint(
        tensors={
            "model.safetensors": {"w": torch.randn(9, 7)},
            "optimizer.safetensors": {"m": torch.randn(9)},
        },
        json={"train.json": {"step": 3, "loss": 1.5}},
        raw={"tokenizer.json": b'{"version": "1.0"}'},
    )
    return save(tmp_path, 3, files)


def refused(folder: Path, name: str) -> str:
    with pytest.raises(CorruptCheckpoint) as caught:
        verify(folder)
    message = str(caught.value)
    assert message.startswith(str(folder / name))
    with pytest.raises(CorruptCheckpoint):
        load(folder)
    return message


def test_as_written_it_verifies(folder):
    found = verify(folder)
    assert found.step == 3
    assert set(found.files) == {"model.safetensors", "optimizer.safetensors", "train.json", "tokenizer.json"}
    assert found.environment["torch"] == str(torch.__version__)
    assert found.environment["threads"] == "1"


def test_flipped_bits_are_all_seen(folder):
    choose = random.Random(5)
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        # Of the manifest, every byte, because nothing but its own checksum covers it.
        places = range(len(content)) if path.name == manifest.MANIFEST else choose.choices(range(len(content)), k=50)
        for place in places:
            flipped = bytearray(content)
            flipped[place] ^= 1 << choose.randrange(8)
            path.write_bytes(flipped)
            with pytest.raises(CorruptCheckpoint) as caught:
                verify(folder)
            assert str(path) in str(caught.value)
        path.write_bytes(content)
    verify(folder)


def test_truncated_grown_missing_and_extra_files_are_seen(folder):
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for other in (b"", content[:-1], content[: len(content) // 2], content + b"\0", content + b"\n"):
            path.write_bytes(other)
            refused(folder, path.name)
        path.unlink()
        refused(folder, path.name)
        path.mkdir()
        refused(folder, path.name)
        path.rmdir()
        path.symlink_to(__file__)
        refused(folder, path.name)
        path.unlink()
        path.write_bytes(content)
    verify(folder)
    (folder / "extra.json").write_text("{}")
    assert "no such file" in refused(folder, "extra.json")


def test_swapped_files_are_seen(folder, tmp_path):
    a, b, spare = folder / "model.safetensors", folder / "optimizer.safetensors", tmp_path / "spare"
    a.rename(spare), b.rename(a), spare.rename(b)
    refused(folder, "model.safetensors")
    b.rename(spare), a.rename(b), spare.rename(a)
    verify(folder)
    other = save(tmp_path, 4, Checkpoint(raw={"train.json": b"{}"}))
    shutil.copy(other / "train.json", folder / "train.json")
    refused(folder, "train.json")


def test_a_checkpoint_under_another_step_is_seen_but_under_a_free_name_is_not(folder, tmp_path):
    best = folder.rename(tmp_path / "best")
    verify(best)
    refused(best.rename(tmp_path / "step-00000009"), "MANIFEST.json:step")


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "[" * 100_000, '{"format": 1}', "NaN", " " * (2 << 20), "\0"])
def test_a_manifest_of_another_making_is_refused(folder, text):
    (folder / "MANIFEST.json").write_text(text)
    refused(folder, "MANIFEST.json")


@pytest.mark.parametrize("name", ["../outside.json", "/etc/hostname", "a/../b", "a//b", "a/.b", ".hidden", ""])
def test_a_manifest_cannot_reach_out_of_its_folder(folder, name):
    outside = folder.parent / "outside.json"
    outside.write_bytes(b"{}")
    entries = {name: manifest.seal(outside, "json")}
    (folder / "MANIFEST.json").write_bytes(manifest.render(3, entries))
    refused(folder, "MANIFEST.json")


def test_a_newer_format_is_refused_in_one_line_and_is_not_corrupt(folder, monkeypatch):
    entries = verify(folder).files
    monkeypatch.setattr(manifest, "FORMAT", 2)
    (folder / "MANIFEST.json").write_bytes(manifest.render(3, entries))
    monkeypatch.setattr(manifest, "FORMAT", 1)
    with pytest.raises(UserError, match="format: expected at most 1, got 2; try a newer version") as caught:
        verify(folder)
    assert not isinstance(caught.value, CorruptCheckpoint)


def test_a_file_that_may_not_be_read_is_an_error_but_not_corruption(folder, monkeypatch):
    def deny(*args, **kwargs):
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(Path, "open", deny)
    with pytest.raises(UserError, match="Permission denied") as caught:
        verify(folder)
    assert not isinstance(caught.value, CorruptCheckpoint)
