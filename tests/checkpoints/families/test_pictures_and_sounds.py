"""Pictures of other sizes than the config's, new heads, and networks trained as in the reference library."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.analysis.attribution import attribute
from clearhead.api import load
from clearhead.checkpoints.families import family_for
from clearhead.checkpoints.families.pictures_and_sounds.sounds import WHISPER
from clearhead.cli.judge.reference import compare
from clearhead.config import ClassificationHead
from clearhead.model import Tokens, Transformer
from clearhead.model.summary import summarize
from clearhead.storage.tensors import model_tensors
from tests.later import later
from tests.parity.cases import base, of
from tests.parity.harness import Case, both, reference

transformers = later("transformers")

CROP = {"do_resize": False, "do_center_crop": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
CLASSES = {"dinov2": "Dinov2Model", "dinov2_with_registers": "Dinov2WithRegistersModel", "dinov3_vit": "DINOv3ViTModel"}


@pytest.mark.parametrize("side", [8, 20])
@pytest.mark.parametrize("family", CLASSES)
def test_pictures_of_the_processor_s_size(family: str, side: int, tmp_path):
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


def test_a_logit_is_the_sum_of_what_scaled_branches_write(tmp_path):
    config = base("dinov2") | {"num_labels": 3}
    reference(Case("dinov2", "", "Dinov2ForImageClassification", config)).save_pretrained(tmp_path)
    pixels = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    found = attribute(load(tmp_path).network, [pixels], 1)
    torch.testing.assert_close(sum(found.shares.values()), found.logit, atol=1e-5, rtol=1e-5)


def test_a_new_head_is_told_and_reads_what_the_family_s_reads(tmp_path, caplog):
    reference(Case("dinov2", "", "Dinov2Model", base("dinov2"))).save_pretrained(tmp_path / "bare")
    ours = load(tmp_path / "bare", head=ClassificationHead(n_labels=3))
    assert any("a new head (classification), its weights drawn at random" in one for one in caplog.messages)
    theirs = transformers.Dinov2ForImageClassification.from_pretrained(ours.save(tmp_path / "classifier"))
    pixels = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(ours.network(Tokens(pixels)), theirs(pixels).logits, atol=1e-5, rtol=1e-5)


def losses(case: Case, theirs: Any, ours: Transformer, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The mean loss of a random batch: there and here."""
    if case.family == "whisper":
        sounds = torch.randn(3, 20, 6, generator=generator, dtype=torch.float64)
        texts = torch.randint(3, 60, (3, 8), generator=generator)
        logits, labels = theirs(sounds.mT.contiguous(), decoder_input_ids=texts[:, :-1]).logits, texts[:, 1:].flatten()
        loss = ours(Tokens(sounds), Tokens(texts[:, :-1]), labels=labels) / len(labels)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels), loss
    pixels = torch.randn(3, 3, 12, 12, generator=generator, dtype=torch.float64)
    labels = torch.randint(5, (3,), generator=generator)
    return theirs(pixels, labels=labels).loss, ours(Tokens(pixels), labels=labels) / 3


@pytest.mark.parametrize("steps", [8, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", [of("deit")[0], of("dinov2_with_registers")[0], of("whisper")[0]], ids=str)
def test_updates_are_the_reference_s(case: Case, steps: int, tmp_path):
    theirs, model = both(case, tmp_path, dtype=torch.float64)
    ours, generator = model.network.train(), torch.Generator().manual_seed(0)
    if case.family == "whisper":
        assert ours.encoder is not None
        ours.encoder.positions.requires_grad_(requires_grad=False)  # As there: the waves are not learned.
        assert compare(tmp_path).close
    networks = (theirs.train(), ours)
    optimizers = [torch.optim.AdamW([p for p in one.parameters() if p.requires_grad], lr=1e-3) for one in networks]
    before = {name: one.clone() for name, one in ours.named_parameters() if one.requires_grad}
    for _ in range(steps):
        pair = losses(case, theirs, ours, generator)
        torch.testing.assert_close(*pair, rtol=1e-9, atol=1e-9)
        for value, optimizer in zip(pair, optimizers, strict=True):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    kept = [name for name, one in ours.named_parameters() if name in before and torch.equal(one, before[name])]
    assert kept in ([], ["encoder.embed.mask_token"])


def test_the_smallest_published_model():
    """39 million parameters, as in the paper's table 1, but for the encoder's waves, which are counted there too."""
    config, _ = WHISPER.read({"model_type": "whisper"}, where="config.json")
    summary = summarize(config)
    assert summary.parameters == 37_760_640
    stem = {row.path: row for row in summary.rows if "conv" in row.path}
    assert stem["encoder.embed.conv1"].flops == 2 * 3000 * 3 * 80 * 384
    assert stem["encoder.embed.conv2"].flops == 2 * 1500 * 3 * 384 * 384
    assert (summary.source_length, summary.target_length) == (1500, 448)
    found = family_for(config)
    assert found is not None
    assert found[0] is WHISPER
