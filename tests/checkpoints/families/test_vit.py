"""What the comparison with the reference library cannot see: other names of tensors, the pooler, and refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from clearhead.analysis.comparison import CLOSE, reference_states, states
from clearhead.api import load
from clearhead.checkpoints.families import family_of
from clearhead.config import ClassificationHead, ModelConfig, NoHead, PatchInput
from clearhead.errors import UserError
from clearhead.model.heads import NoHead as NoHeadModule
from clearhead.model.layout import Layout
from tests.checkpoints.families.hub import CONFIGS
from tests.parity.cases import base
from tests.parity.harness import Case, Gap, inputs, reference

SMALL = {name: value for name, value in base("vit").items() if name != "num_labels"}


def read(document: dict[str, Any]) -> ModelConfig:
    return family_of(document, where="config.json").read(document, where="config.json")[0]


def test_sizes_may_be_given_as_squares() -> None:
    assert read(CONFIGS["vit"] | {"image_size": [224, 224], "patch_size": [16, 16]}) == read(CONFIGS["vit"])
    encoder = read(CONFIGS["vit"]).encoder
    assert encoder is not None
    assert encoder.input == PatchInput(image_size=224, patch_size=16)
    assert encoder.max_length == 197


def test_two_classes_may_have_one_name() -> None:
    head = read(CONFIGS["vit"]).head
    assert isinstance(head, ClassificationHead)
    assert head.labels == ("tench", "crane", "shark", "crane")


@pytest.mark.parametrize(("architecture", "prefix"), [("ViTForImageClassification", "vit."), ("ViTModel", "")])
def test_tensors_by_the_library_s_own_names(architecture: str, prefix: str, tmp_path: Path) -> None:
    """Newer than those it writes; with a mask token, and a pooler that a classifier does not use."""
    pytest.importorskip("transformers")
    case = Case("vit", "", architecture, SMALL)
    theirs = reference(case)
    theirs.save_pretrained(tmp_path)
    tensors = theirs.state_dict()
    assert f"{prefix}layers.0.attention.q_proj.weight" in tensors
    unused = {f"{prefix}embeddings.mask_token": torch.ones(1, 1, 24)}
    if prefix:
        unused |= {f"{prefix}pooler.dense.weight": torch.ones(24, 24), f"{prefix}pooler.dense.bias": torch.ones(24)}
    save_file(tensors | unused, tmp_path / "model.safetensors", {"format": "pt"})
    ours = load(tmp_path)
    batch = inputs(case, theirs)
    expected = reference_states(theirs, batch.theirs, ours.network)
    assert Gap.between(expected, states(ours.network, batch.ours), batch.ours).relative <= CLOSE


def test_a_pooler_is_there_where_its_tensors_are(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    case = Case("vit", "", "ViTModel", SMALL)
    theirs = reference(case)
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    assert ours.config.head == NoHead(pooler=True)
    batch = inputs(case, theirs)
    head = ours.network.head
    assert isinstance(head, NoHeadModule)
    with torch.no_grad():
        expected = theirs(**batch.theirs).pooler_output
        states, layout = ours.network.states(*batch.ours)
        assert isinstance(layout, Layout)
        torch.testing.assert_close(head.pooled(states, layout), expected, atol=1e-5, rtol=0)

    kept = {name: tensor for name, tensor in theirs.state_dict().items() if not name.startswith("pooler.")}
    save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
    without = load(tmp_path)
    assert without.config.head == NoHead(pooler=False)
    assert json.loads((without.save(tmp_path / "again") / "config.json").read_text())["architectures"] == ["ViTModel"]
    assert load(tmp_path / "again").config == without.config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": [224, 192]}, r"image_size: expected a square, one number or twice the same, got \[224, 192\]"),
        ({"patch_size": 15}, "patch_size=15 must divide image_size=224"),
        ({"patch_size": 0}, "config.json:"),
        ({"architectures": ["ViTModel"], "pooler_act": "gelu"}, "pooler_act: expected 'tanh'"),
        (
            {"architectures": ["ViTModel"], "pooler_output_size": 7},
            "pooler_output_size: expected 768, which is hidden",
        ),
        ({"architectures": ["ViTForMaskedImageModeling"]}, "architectures: expected one of ViTForImageClassification"),
    ],
)
def test_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(CONFIGS["vit"] | changes)
