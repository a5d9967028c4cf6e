"""Models that do not fit into memory are refused before anything of them is read or allocated."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from clearhead import runs
from clearhead.api import load, pretrained
from clearhead.api.pretrained import check_load, common_dtype
from clearhead.errors import OutOfMemory
from clearhead.machine.memory import MemoryLimit
from clearhead.storage import checkpoints
from clearhead.tasks.language_model import LanguageRecipe
from clearhead.tasks.registry import validate
from clearhead.training.ranks import ALONE

CPU = torch.device("cpu")
Limit = Callable[..., None]


@pytest.fixture
def limit(monkeypatch) -> Limit:
    """Sets how much memory there is, or how many addresses."""

    def set_to(n_bytes: int, *, addresses: bool = False) -> None:
        known = [MemoryLimit(n_bytes, "of the test", counts_mapped=addresses)]
        monkeypatch.setattr("clearhead.machine.memory.memory_limits", lambda: known)

    return set_to


def asked(**options: torch.dtype | bool | None) -> Any:
    return {"dtype": None, "device": CPU, "int8": False} | options


def needs(folder: Path, n_bytes: int, limit: Limit, *, addresses: bool = False, **options: Any) -> None:
    """Asserts that weights fit into so much memory, or so many addresses, and into no byte less."""
    limit(n_bytes, addresses=addresses)
    check_load(folder, **asked(**options))
    limit(n_bytes - 1, addresses=addresses)
    with pytest.raises(OutOfMemory, match=f"^{folder}: expected weights that fit into "):
        check_load(folder, **asked(**options))


def weights(folder: Path, tensors: dict[str, torch.Tensor]) -> int:
    """Writes them, and returns the size of the file."""
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    return (folder / "model.safetensors").stat().st_size


MIXED = {"a": torch.zeros(10, 10), "b": torch.zeros(5, dtype=torch.bfloat16), "n": torch.zeros(3, dtype=torch.int64)}


def test_what_is_mapped_needs_no_memory_but_addresses(tmp_path, limit: Limit):
    size = weights(tmp_path, MIXED | {"b": torch.zeros(5)})
    needs(tmp_path, size, limit, addresses=True)
    limit(0)
    check_load(tmp_path, **asked())


@pytest.mark.parametrize(
    ("dtype", "n_bytes"),
    [(None, 5 * 4), (torch.float32, 5 * 4), (torch.bfloat16, 100 * 2), (torch.float64, 105 * 8)],
)
def test_what_changes_its_type_is_allocated(dtype: Any, n_bytes: int, tmp_path, limit: Limit):
    weights(tmp_path, MIXED)
    needs(tmp_path, n_bytes, limit, dtype=dtype)


def test_eight_bits_are_a_copy(tmp_path, limit: Limit):
    weights(tmp_path, {"table": torch.zeros(20, 10), "matrix": torch.zeros(10, 10)})
    needs(tmp_path, 300, limit, int8=True)


def test_shards_count_together_and_other_files_do_not(tmp_path, limit: Limit):
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    for name, file in names.items():
        save_file({name: torch.zeros(10)}, tmp_path / file)
    save_file({"m": torch.zeros(1000)}, tmp_path / "optimizer.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}), encoding="utf-8")
    needs(tmp_path, 20 * 2, limit, dtype=torch.bfloat16)


def test_a_pickle_that_is_no_archive_is_read_whole(tmp_path, limit: Limit):
    (tmp_path / "pytorch_model.bin").write_bytes(b"x" * 50)
    needs(tmp_path, 50, limit)


@pytest.mark.parametrize("header", [None, b"", b"\x10", struct.pack("<Q", 1 << 60), struct.pack("<Q", 2) + b"{}x"])
def test_broken_files_are_left_to_their_reader(header: bytes | None, tmp_path, limit: Limit):
    limit(0)
    if header is None:
        (tmp_path / "model.safetensors.index.json").write_text("[", encoding="utf-8")
    else:
        (tmp_path / "model.safetensors").write_bytes(header)
    check_load(tmp_path, **asked(dtype=torch.float64, int8=True))


def test_a_file_that_the_kernel_does_not_map(tmp_path, monkeypatch):
    weights(tmp_path, MIXED)

    def unmapped(*_: object, **__: object) -> None:
        raise RuntimeError("unable to mmap 4 bytes from file <model.safetensors>: Cannot allocate memory (12)")

    monkeypatch.setattr(pretrained, "safe_open", unmapped)
    with pytest.raises(OutOfMemory, match=": expected weights that this machine can map into memory, got "):
        check_load(tmp_path, **asked())


def test_the_most_common_dtype():
    assert common_dtype([]) == torch.float32
    assert common_dtype([(torch.float32, 5), (torch.bfloat16, 4), (torch.bfloat16, 2)]) == torch.bfloat16


# --- runs ----------------------------------------------------------------------------------------------------------


def recipe(tmp_path: Path, **sizes: int) -> LanguageRecipe:
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 50, encoding="utf-8")
    tables = {
        "task": "lm",
        "data": {"train": {"kind": "text", "paths": [str(tmp_path / "text.txt")]}, "length": 8},
        "model": {"preset": "nano", "stacks": {"d_model": 32, "n_heads": 2, "d_ff": 64, "n_layers": 2} | sizes},
        "tokenizer": {"kind": "characters"},
        "training": {"steps": 1, "max_tokens": 512, "device": "cpu"},
    }
    found = validate(tables, where="recipe")
    assert isinstance(found, LanguageRecipe)
    return found


def nothing_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("judged too late")

    for place in ("clearhead.training.planning.fitting.Transformer", "clearhead.runs.Transformer"):
        monkeypatch.setattr(place, refuse)


def test_a_model_too_large_is_refused_before_the_data_are_read(tmp_path, monkeypatch):
    nothing_is_allocated(monkeypatch)
    monkeypatch.setattr(runs, "prepare_task", nothing_is_allocated)
    huge = recipe(tmp_path, d_model=1 << 18, d_ff=1 << 20, n_layers=64)
    with pytest.raises(OutOfMemory, match=r"^model: expected one that trains within .*d_model 262,144, d_ff 1,048,576"):
        runs.start(huge, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_batch_too_large_is_refused_before_the_network_is_allocated(tmp_path, monkeypatch, limit: Limit):
    small = recipe(tmp_path)
    nothing_is_allocated(monkeypatch)
    real = runs.prepare_task

    def prepare(*given: object) -> object:
        found = real(*given)  # pyrefly: ignore
        limit(450_000)
        return found

    monkeypatch.setattr(runs, "prepare_task", prepare)
    with pytest.raises(OutOfMemory, match=r"^training\.max_tokens: expected a batch that fits into .* of the test"):
        runs.start(small, tmp_path / "run")


def test_a_run_too_large_to_go_on_is_refused_before_it_is_verified(tmp_path, monkeypatch, limit: Limit):
    run, _ = runs.start(recipe(tmp_path), tmp_path / "run")
    checkpoints.save(tmp_path / "run", 1, run.checkpoint())
    nothing_is_allocated(monkeypatch)
    monkeypatch.setattr(runs, "newest_checkpoint", nothing_is_allocated)
    limit(10_000)
    with pytest.raises(OutOfMemory, match=r"^model: expected one that trains within "):
        runs.resume(tmp_path / "run")
    for broken in ("recipe.json", "config.json"):
        (tmp_path / "run" / "step-00000001" / broken).write_text("{", encoding="utf-8")
        runs.check_resume(tmp_path / "run", {}, ALONE)


def test_the_check_can_be_left_out(tmp_path, limit: Limit):
    limit(0)
    given = recipe(tmp_path)
    training = given.training.model_copy(update={"check_memory": False})
    runs.start(given.model_copy(update={"training": training}), tmp_path / "run")


def test_load_asks_first(tmp_path, limit: Limit):
    run, _ = runs.start(recipe(tmp_path), tmp_path / "run")
    folder = checkpoints.save(tmp_path / "run", 1, run.checkpoint())
    limit(10)
    load(folder)
    with pytest.raises(OutOfMemory, match=r": expected weights that fit into .* of the test, got "):
        load(folder, dtype="bfloat16")
