"""What the comparison with the reference library cannot see: pictures of other sizes than the config's, refusals."""

import json
from pathlib import Path

import pytest
import torch

from clearhead.analysis.attribution import attribute
from clearhead.api import load
from clearhead.config import ClassificationHead
from clearhead.model import Tokens
from clearhead.storage.tensors import model_tensors
from tests.later import later
from tests.parity.cases import base, of
from tests.parity.harness import Case, reference

transformers = later("transformers")

CROP = {"do_resize": False, "do_center_crop": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
CLASSES = {"dinov2": "Dinov2Model", "dinov2_with_registers": "Dinov2WithRegistersModel", "dinov3_vit": "DINOv3ViTModel"}


@pytest.mark.parametrize("side", [8, 20])
@pytest.mark.parametrize("family", CLASSES)
def test_pictures_of_the_processor_s_size(family: str, side: int, tmp_path: Path) -> None:
    """Two patches and five in a row, with positions for three: the reference takes them as they come."""
    theirs = reference(Case(family, "", CLASSES[family], base("dinov3_vit" if family == "dinov3_vit" else "dinov2")))
    theirs.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "preprocessor_config.json").write_text(json.dumps(CROP | {"crop_size": side}))
    ours = load(tmp_path / "theirs")
    pixels = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = theirs(pixels).last_hidden_state
        torch.testing.assert_close(ours.network(Tokens(pixels)), expected, atol=1e-5, rtol=1e-5)
    again = load(ours.save(tmp_path / "ours"))
    assert again.config == ours.config
    kept = model_tensors(again.network)
    assert all(torch.equal(tensor, kept[name]) for name, tensor in model_tensors(ours.network).items())
    if family != "dinov3_vit":
        assert json.loads((tmp_path / "ours" / "config.json").read_text())["image_size"] == base("dinov2")["image_size"]


def test_a_logit_is_the_sum_of_what_scaled_branches_write(tmp_path: Path) -> None:
    config = base("dinov2") | {"num_labels": 3}
    reference(Case("dinov2", "", "Dinov2ForImageClassification", config)).save_pretrained(tmp_path)
    pixels = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    found = attribute(load(tmp_path).network, [pixels], 1)
    torch.testing.assert_close(sum(found.shares.values()), found.logit, atol=1e-5, rtol=1e-5)


def test_a_new_head_reads_what_the_family_s_reads(tmp_path: Path) -> None:
    reference(Case("dinov2", "", "Dinov2Model", base("dinov2"))).save_pretrained(tmp_path / "bare")
    ours = load(tmp_path / "bare", head=ClassificationHead(n_labels=3))
    theirs = transformers.Dinov2ForImageClassification.from_pretrained(ours.save(tmp_path / "classifier"))
    pixels = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(ours.network(Tokens(pixels)), theirs(pixels).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("steps", [20, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", [of("deit")[0], of("dinov2_with_registers")[0]], ids=str)
def test_updates_are_the_reference_s(case: Case, steps: int, tmp_path: Path) -> None:
    theirs = reference(case, dtype=torch.float64).train()
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path).network.train()
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-3) for model in (theirs, ours)]
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        pixels = torch.randn(3, 3, 12, 12, generator=generator, dtype=torch.float64)
        labels = torch.randint(5, (3,), generator=generator)
        expected, loss = theirs(pixels, labels=labels).loss, ours(Tokens(pixels), labels=labels) / 3
        torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-9)
        for value, optimizer in zip((expected, loss), optimizers, strict=True):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
