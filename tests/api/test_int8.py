"""Eight-bit weights from `load`: how far they are from the others, and what they refuse."""

import gc
import shutil
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import clearhead
from clearhead.errors import UserError
from clearhead.generation import complete
from clearhead.recipe.generation import GenerationConfig
from tests.small_models import PAIRS, model_of

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch without oneDNN")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    """A language model whose small weights make no mountain of a rounding."""
    model = model_of("gpt2")
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter *= 0.2
    return str(model.save(tmp_path_factory.mktemp("models") / "gpt2"))


def test_load_rounds_the_matrices(folder: str):
    exact, eight = clearhead.load(folder), clearhead.load(folder, int8=True)
    text = PAIRS.source[0]
    gap = (eight.logits(text) - exact.logits(text)).norm() / exact.logits(text).norm()
    assert 0 < gap < 0.1
    seen, logits = eight.trace(text)
    assert (logits - exact.logits(text)).norm() < 0.1 * logits.norm()
    assert "decoder.blocks.0.attn.heads" in seen
    assert not any(p.ndim == 2 and "positions" not in name for name, p in eight.network.named_parameters())


@pytest.mark.parametrize("option", ["int8", "int4"])
def test_nothing_keeps_the_file_mapped(folder: str, tmp_path, option: str):
    maps = Path("/proc/self/maps")
    if not maps.is_file():
        pytest.skip("no list of what is mapped")
    shutil.copytree(folder, tmp_path / "copy")
    model = clearhead.load(tmp_path / "copy", **{option: True})  # pyrefly: ignore[bad-argument-type]
    gc.collect()
    assert str(tmp_path) not in maps.read_text(encoding="utf-8")
    assert model.logits(PAIRS.source[0]).isfinite().all()


def test_what_int8_cannot_do_is_one_line(folder: str, tmp_path):
    with pytest.raises(UserError, match=r"^dtype: expected float32 beside int8, got bfloat16"):
        clearhead.load(folder, dtype="bfloat16", int8=True)
    model = clearhead.load(folder, int8=True)
    for what in (lambda: model.save(tmp_path / "out"), lambda: model.changed(scale=False)):
        with pytest.raises(UserError, match="expected weights as they were stored, got int8"):
            what()
    assert not (tmp_path / "out").exists()


def test_a_trained_model_loses_little(shared_data: Path):
    """On its own stories: the loss within 1.5%, and 95% of the likeliest tokens the same (docs/inference.md)."""
    folder = shared_data / "checkpoints" / "stories15M"
    if not folder.is_dir():
        pytest.skip("no checkpoint stories15M in the folder of real data")
    exact, eight = clearhead.load(folder, dtype="float32").network, clearhead.load(folder, int8=True).network
    drawn = GenerationConfig(max_new_tokens=100, temperature=1.0, n_best=4, seed=3, end_ids=(2,))
    [stories] = complete(exact, [[1]], config=drawn)
    loss, same, n = torch.zeros(2), 0, 0
    with torch.inference_mode():
        for story in stories:
            ids = torch.tensor([[1, *story.tokens]])
            logits = [network(ids)[0, :-1] for network in (exact, eight)]
            loss += torch.stack([F.cross_entropy(one, ids[0, 1:], reduction="sum") for one in logits])
            same += int((logits[0].argmax(-1) == logits[1].argmax(-1)).sum())
            n += len(logits[0])
    assert n > 300
    assert loss[0] < loss[1] < 1.015 * loss[0] or loss[1] <= loss[0]
    assert same >= 0.95 * n
