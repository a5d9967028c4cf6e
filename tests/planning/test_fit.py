from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from clearhead.errors import OutOfMemory
from clearhead.families import preset
from clearhead.model import Tokens
from clearhead.planning import fit
from clearhead.planning.fit import Estimate, available_memory, require_memory, shape_of
from clearhead.planning.memory import Setting, Shape
from clearhead.recipe.training import Training

CPU = torch.device("cpu")
SHAPE = Shape(16, target=64)
TRAINING = Training(max_tokens=1024, ema=0.9)


NANO = preset("nano")
FP32 = Setting(mixed=False)


def estimate(shape: Shape = SHAPE) -> Estimate:
    return Estimate.of(NANO, TRAINING, shape, FP32, CPU)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Sets how much memory there is."""
    return lambda n_bytes: monkeypatch.setattr(fit, "available_memory", lambda _: n_bytes)


def refusal(setting: Setting = FP32) -> str:
    with pytest.raises(OutOfMemory) as error:
        require_memory(NANO, TRAINING, SHAPE, setting, CPU)
    return str(error.value)


def test_what_is_there_already_is_not_needed_again() -> None:
    found = estimate()
    assert found.needed == found.memory.total - found.memory.weights - found.memory.mean


def test_enough_memory_says_nothing(free: Callable[[int | None], None]) -> None:
    needed = estimate().needed
    for available in (needed, None):
        free(available)
        assert require_memory(NANO, TRAINING, SHAPE, FP32, CPU).needed == needed
    free(needed - 1)
    assert refusal()


def test_too_little_says_what_to_lower(free: Callable[[int | None], None]) -> None:
    free(30_000_000)
    text = refusal()
    assert text.startswith(
        "training.max_tokens: expected a batch that fits into 0.03 GB of free memory, got one of 16 x"
    )
    assert text.endswith(", or --training.checkpoint_activations true")
    words = text.split()
    lower, more = (
        int(words[words.index(f"--training.{name}") + 1].strip(",")) for name in ("max_tokens", "accumulate")
    )
    assert lower * more >= TRAINING.max_tokens
    assert estimate(Shape(lower // 64, target=64)).fits
    assert require_memory(NANO, TRAINING, SHAPE, replace(FP32, checkpointed=True), CPU).fits


def test_where_no_batch_would_fit_the_model_is_too_large(free: Callable[[int | None], None]) -> None:
    free(1_000_000)
    assert refusal().endswith("; try a smaller model, or shorter texts")


def test_shape_of_batches() -> None:
    source, target = (Tokens(torch.zeros(2, n, dtype=torch.long)) for n in (5, 7))
    padded = Tokens.pad([[1, 2], [3]])
    assert shape_of(preset("demo"), [source, target]) == Shape(2, 5, 7)
    assert shape_of(NANO, [padded]) == Shape(2, 0, 2)
    assert shape_of(preset("bert-base"), [source]) == Shape(2, 5, 0)
    assert shape_of(preset("vit-tiny"), [Tokens(torch.zeros(3, 3, 224, 224))]) == Shape(3, 197, 0)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 3_072_000),
        ({"memory.max": "max", "memory.current": "9", "memory.stat": ""}, 3_072_000),
        ({"memory.max": "2000000", "memory.current": "1500000", "memory.stat": "inactive_file 300000"}, 800_000),
        (
            {
                "memory/memory.limit_in_bytes": "1000000",
                "memory/memory.usage_in_bytes": "1500000",
                "memory/memory.stat": "cache 7\ntotal_inactive_file 5",
            },
            0,
        ),
        ({"memory.max": "9223372036854771712", "memory.current": "1", "memory.stat": ""}, 3_072_000),
    ],
)
def test_available_is_the_least_of_machine_and_container(
    files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    3000 kB\n", encoding="utf-8")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(fit, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(fit, "CGROUP", tmp_path)
    assert available_memory(CPU) == expected


def test_a_machine_that_says_nothing_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "MEMINFO", tmp_path / "none")
    monkeypatch.setattr(fit, "CGROUP", tmp_path)
    assert available_memory(CPU) is None
    assert estimate().fits
