import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from clearhead.checkpoints.families import preset
from clearhead.errors import OutOfMemory
from clearhead.machine.memory import MemoryLimit, require_weights
from clearhead.model import Tokens
from clearhead.recipe.training import Training
from clearhead.training.planning.fitting import Estimate, require_host, shape_of
from clearhead.training.planning.memory import Network, Setting, Shape

CPU = torch.device("cpu")
SHAPE, ONE = Shape(16, target=64), Shape(1, target=1)
TRAINING = Training(max_tokens=1024, ema=0.9)


NANO = preset("nano")
FP32 = Setting(mixed=False)


def estimate(shape: Shape = SHAPE, *, is_allocated: bool = False) -> Estimate:
    return Estimate(NANO, TRAINING, shape, FP32, CPU, is_allocated)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Sets how much memory there is."""

    def there_is(n_bytes: int | None) -> None:
        known = [] if n_bytes is None else [MemoryLimit(n_bytes, "of free memory")]
        monkeypatch.setattr("clearhead.machine.memory.memory_limits", lambda: known)

    return there_is


def refusal(training: Training = TRAINING) -> str:
    with pytest.raises(OutOfMemory) as error:
        Estimate(NANO, training, SHAPE, FP32, CPU).require_batch()
    return str(error.value)


def test_enough_memory_says_nothing(free: Callable[[int | None], None]) -> None:
    needed = estimate().needed
    for available in (needed, None):
        free(available)
        assert estimate().needed == needed
        estimate().require_batch()
    free(needed - 1)
    assert refusal()


@pytest.mark.parametrize("accumulate", [1, 3])
def test_too_little_says_what_to_lower(free: Callable[[int | None], None], accumulate: int) -> None:
    there = estimate(is_allocated=True).there
    free(30_000_000 + there)
    text = refusal(training=TRAINING.model_copy(update={"accumulate": accumulate}))
    assert text.startswith("training.max_tokens: expected a batch that fits into 37 MB of free memory, got one of 16 x")
    assert text.endswith(", or --training.checkpoint_activations true")
    words = text.split()
    lower, more = (
        int(words[words.index(f"--training.{name}") + 1].strip(",")) for name in ("max_tokens", "accumulate")
    )
    assert accumulate * TRAINING.max_tokens <= lower * more < accumulate * TRAINING.max_tokens + lower
    assert estimate(Shape(lower // 64, target=64)).fits
    Estimate(NANO, TRAINING, SHAPE, replace(FP32, checkpointed=True), CPU).require_batch()


def test_where_no_batch_would_fit_the_model_is_too_large(free: Callable[[int | None], None]) -> None:
    free(1_000_000)
    text = refusal()
    assert text.startswith("model: expected one that trains within 1 MB of free memory, got ")
    for part in ("weights", "gradients", "optimizer", "mean of weights", "activations"):
        assert re.search(rf"[(, ]{part} [0-9.]+ MB", text)
    assert text.endswith("; try a smaller model: model.stacks has d_model 128, d_ff 512, n_layers 4")


def test_weights_of_half_the_size_are_offered_where_they_fit(free: Callable[[int | None], None]) -> None:
    small = replace(FP32, weights="bf16", mixed=True)
    needed = Estimate(NANO, Training(), ONE, small, CPU).needed
    assert needed < Estimate(NANO, Training(), ONE, FP32, CPU).fixed
    free(needed)
    with pytest.raises(OutOfMemory, match=r"; try --training\.weights bf16, or a smaller model"):
        Estimate(NANO, Training(), ONE, FP32, CPU).require_model()
    with pytest.raises(OutOfMemory, match=r"; try a smaller model"):
        Estimate(NANO, Training(precision="fp32"), ONE, FP32, CPU).require_model()


def test_a_model_alone_is_judged_by_what_no_batch_lowers(free: Callable[[int | None], None]) -> None:
    fixed = Estimate(NANO, TRAINING, ONE, FP32, CPU).fixed
    for enough in (fixed, None):
        free(enough)
        Estimate(NANO, TRAINING, ONE, FP32, CPU).require_model()
    free(fixed - 1)
    with pytest.raises(OutOfMemory, match=r"^model: expected one that trains within "):
        Estimate(NANO, TRAINING, ONE, FP32, CPU).require_model()


def test_a_network_is_made_in_the_machines_own_memory(free: Callable[[int | None], None]) -> None:
    n_bytes = 4 * Network(NANO).weights
    free(n_bytes)
    require_host(NANO)
    free(n_bytes - 1)
    with pytest.raises(OutOfMemory, match=r"^model: expected weights that fit into .*, where they are drawn, got "):
        require_host(NANO)


def test_mapped_weights_take_addresses_and_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, addresses = (
        MemoryLimit(1000, "of free memory"),
        MemoryLimit(5000, "that `ulimit -v` leaves", counts_mapped=True),
    )
    monkeypatch.setattr("clearhead.machine.memory.memory_limits", lambda: [memory, addresses])
    require_weights("model", CPU, allocated=1000, mapped=4000)
    for allocated, mapped, binding in ((1001, 0, memory), (1000, 4001, addresses)):
        with pytest.raises(OutOfMemory, match=re.escape(f"model: expected weights that fit into {binding}, got ")):
            require_weights("model", CPU, allocated=allocated, mapped=mapped)


def test_shape_of_batches() -> None:
    source, target = (Tokens(torch.zeros(2, n, dtype=torch.long)) for n in (5, 7))
    padded = Tokens.pad([[1, 2], [3]])
    assert shape_of(preset("demo"), [source, target]) == Shape(2, 5, 7)
    assert shape_of(NANO, [padded]) == Shape(2, 0, 2)
    assert shape_of(preset("bert-base"), [source]) == Shape(2, 5, 0)
    assert shape_of(preset("vit-tiny"), [Tokens(torch.zeros(3, 3, 224, 224))]) == Shape(3, 197, 0)


def test_a_teacher_is_priced(free: Callable[[int | None], None]):
    """Its weights, which are there beside those of the run, and its answers, which need all logits at once."""
    taught, shape = replace(FP32, teacher=NANO), Shape(1, target=8)
    base, found = (Estimate(NANO, TRAINING, shape, setting, CPU) for setting in (FP32, taught))
    weights = base.memory.weights
    assert found.fixed == base.fixed + weights
    assert found.memory.logits > base.memory.logits
    held = Estimate(NANO, TRAINING, shape, taught, CPU, is_allocated=True)
    assert found.needed - held.needed == 2 * weights + base.memory.mean
    free(found.fixed - 1)
    Estimate(NANO, TRAINING, ONE, FP32, CPU).require_model()
    with pytest.raises(OutOfMemory, match=r"^model: expected one that trains .* teacher .* a smaller teacher$"):
        Estimate(NANO, TRAINING, ONE, taught, CPU).require_model()
