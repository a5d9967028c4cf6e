"""Folders of features: our own, and those of SAELens, written here as their sources say."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from clearhead.analysis.features import Features, Site
from clearhead.api.features import attach, load_features, save_features
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.norm import LayerNorm
from tests.small_models import model_of

D, N = 16, 24


@pytest.fixture
def network() -> Transformer:
    return model_of("nano", n_layers=2).network


def weights(*, transcoder: bool = False) -> dict[str, Tensor]:
    torch.manual_seed(4)
    found = {"W_enc": torch.randn(D, N), "b_enc": torch.randn(N), "W_dec": torch.randn(N, D), "b_dec": torch.randn(D)}
    return found | ({"W_skip": torch.randn(D, D)} if transcoder else {})


def test_our_own(tmp_path, network: Transformer):
    w = weights(transcoder=True)
    site = Site("decoder.blocks.1.ffn_norm.out", "decoder.blocks.1.ffn.out")
    made = Features(site, w["W_enc"], w["b_enc"], w["W_dec"], w["b_dec"], torch.rand(N), 4, w["W_skip"], name="mine")
    save_features(made, tmp_path / "f", report={"recovered": 0.9})
    again = load_features(tmp_path / "f", network)
    x = torch.randn(5, D)
    assert (again.site, again.name, again.k) == (site, "mine", 4)
    assert torch.equal(again.reconstructed(x), made.reconstructed(x))
    attach(network, again)
    with pytest.raises(UserError, match="expected nothing there"):
        save_features(made, tmp_path / "f")
    (tmp_path / "f" / "features.json").write_text('{"format": "clearhead-features/9", "reads": "a", "writes": "a"}')
    with pytest.raises(UserError, match=r"features.json:format"):
        load_features(tmp_path / "f", network)


def sae_lens(folder: Path, tensors: dict[str, Tensor], **facts: object) -> Path:
    folder.mkdir()
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "sae_weights.safetensors")
    (folder / "cfg.json").write_text(json.dumps({"d_in": D, "d_sae": N, "dtype": "float32", **facts}))
    return folder


THRESHOLD = torch.rand(N, generator=torch.Generator().manual_seed(1)) * 3


def largest(before: Tensor) -> Tensor:
    values, at = before.topk(3)
    return torch.zeros_like(before).scatter(1, at, values.relu())


def above(before: Tensor) -> Tensor:
    return before.relu() * (before > THRESHOLD)


@pytest.mark.parametrize(
    ("facts", "stored", "active"),
    [
        ({"architecture": "standard"}, {}, torch.relu),  # b_dec is subtracted before the encoder.
        ({"model_from_pretrained_kwargs": {"center_writing_weights": True}}, {}, torch.relu),
        ({"architecture": "topk", "k": 3, "apply_b_dec_to_input": False}, {}, largest),
        (
            {"architecture": "topk", "k": 3, "apply_b_dec_to_input": False, "rescale_acts_by_decoder_norm": True},
            {},
            largest,
        ),
        ({"architecture": "jumprelu", "apply_b_dec_to_input": False}, {"threshold": THRESHOLD}, above),
        ({"architecture": "jumprelu", "apply_b_dec_to_input": False}, {"log_threshold": THRESHOLD.log()}, above),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_sae_lens(
    tmp_path,
    network: Transformer,
    facts: dict[str, Any],
    stored: dict[str, Tensor],
    active: Callable[[Tensor], Tensor],
    nested: bool,
):
    """The flat config of older files, and today's with metadata."""
    w, x = weights(), torch.randn(7, D)
    hook = {"hook_name": "blocks.1.hook_resid_pre"}
    folder = sae_lens(tmp_path / "a", w | stored, **facts, **({"metadata": hook} if nested else hook))
    found = load_features(folder, network)
    length = w["W_dec"].norm(dim=1) if "rescale_acts_by_decoder_norm" in facts else torch.ones(N)
    read = x - w["b_dec"] if facts.get("apply_b_dec_to_input", True) else x
    if "model_from_pretrained_kwargs" in facts:
        read = read - x.mean(1, keepdim=True)
    expected = active((read @ w["W_enc"] + w["b_enc"]) * length)
    assert found.reads == found.writes == "decoder.blocks.1.resid_pre"
    assert torch.allclose(found.encode(x), expected, atol=1e-4)
    assert torch.allclose(found.reconstructed(x), (expected / length) @ w["W_dec"] + w["b_dec"], atol=1e-4)


@pytest.mark.parametrize("preset", ["gpt2", "nano"])
def test_sae_lens_transcoder_reads_a_norm_before_its_gain(tmp_path, preset: str):
    network = model_of(preset, n_layers=2).network
    w = weights(transcoder=True)
    metadata = {"hook_name": "blocks.1.ln2.hook_normalized", "hook_name_out": "blocks.1.hook_mlp_out"}
    folder = sae_lens(tmp_path / "a", w, architecture="skip_transcoder", metadata=metadata)
    found = load_features(folder, network)
    assert (found.reads, found.writes) == ("decoder.blocks.1.ffn_norm.out", "decoder.blocks.1.ffn.out")
    norm = network.decoder.blocks[1].ffn_norm  # type: ignore[union-attr]
    n = torch.randn(7, D)
    out = n * norm.gain + (norm.bias if isinstance(norm, LayerNorm) else 0)  # type: ignore[operator, union-attr]
    assert isinstance(norm, LayerNorm) == (preset == "gpt2")
    expected = (n @ w["W_enc"] + w["b_enc"]).relu() @ w["W_dec"] + w["b_dec"] + n @ w["W_skip"].T
    assert torch.allclose(found.reconstructed(out), expected, atol=1e-3)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"architecture": "gated"}, "architecture: expected standard, topk, jumprelu or a transcoder, got 'gated'"),
        ({"normalize_activations": "layer_norm"}, "normalize_activations: expected 'none', got 'layer_norm'"),
        ({"hook_name": "blocks.0.attn.hook_z"}, "hook_name: expected blocks.0. and one of"),
        ({"hook_name": "blocks.5.hook_resid_pre"}, "expected a block of this network's decoder"),
        ({"hook_head_index": 2}, "hook_head_index: expected features of a whole value"),
        ({"architecture": "topk"}, "k: expected a whole number with topk, got None"),
        ({"architecture": "jumprelu"}, "expected a threshold with jumprelu alone"),
    ],
)
def test_what_sae_lens_has_and_we_do_not(tmp_path, network: Transformer, facts: dict[str, object], message: str):
    given = {"architecture": "standard", "hook_name": "blocks.0.hook_resid_pre", **facts}
    with pytest.raises(UserError, match=message):
        load_features(sae_lens(tmp_path / "a", weights(), **given), network)


def test_folders_of_something_else(tmp_path, network: Transformer):
    with pytest.raises(UserError, match=r"expected features.json or cfg.json"):
        load_features(tmp_path, network)
