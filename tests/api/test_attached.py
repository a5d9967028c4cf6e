"""Features attached to a network: addresses of their own, edits by the change alone; and edits without a trace."""

from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.analysis.ablation import effects
from clearhead.analysis.features import Features, Site
from clearhead.api import Model
from clearhead.api.features import attach
from clearhead.errors import UserError
from clearhead.trace import Edit, Trace, edited
from tests.small_models import model_of
from tests.training.tiny import SMALL

D = int(str(SMALL["d_model"]))
SITES = [
    ("nano", "decoder.blocks.0.resid_post", "decoder.blocks.0.resid_post"),
    ("nano", "decoder.blocks.1.ffn_norm.out", "decoder.blocks.1.ffn.out"),
    ("demo", "encoder.blocks.0.resid_post", "encoder.blocks.0.resid_post"),
    ("demo", "decoder.blocks.1.resid_cross", "decoder.blocks.1.resid_cross"),
    ("demo", "decoder.blocks.0.cross.out", "decoder.blocks.0.cross.out"),
]


def features_at(reads: str, writes: str, *, n: int = 24, k: int | None = None, name: str = "features") -> Features:
    torch.manual_seed(3)
    return Features(
        Site(reads, writes), torch.randn(D, n), torch.zeros(n), torch.randn(n, D), torch.zeros(D), k=k, name=name
    )


def read(model: Model, edit: dict[str, Edit] | None = None) -> tuple[Trace, Tensor]:
    texts: list[Any] = ["one two three", "one"]
    return model.trace(texts, ["two", "three four five"] if model.is_encoder_decoder else None, edit=edit)


@pytest.mark.parametrize(("preset", "reads", "writes"), SITES)
def test_a_feature_is_an_address(preset: str, reads: str, writes: str):
    model, features = model_of(preset, n_layers=2), features_at(reads, writes, k=5)
    plain, logits = read(model)
    attach(model.network, features)
    seen, same = read(model)
    assert torch.equal(same, logits), "not a bit changes before an edit"
    active = seen[features.address]
    assert torch.equal(active, features.encode(plain[reads]))
    feature = int(active[0, 0].argmax())
    edited_trace, other = read(model, {f"{features.address}[f={feature}]": 7.0})
    change = torch.zeros_like(active)
    change[..., feature] = 7.0 - active[..., feature]
    difference = edited_trace[writes] - plain[writes]
    real = difference.abs().sum(-1) > 0
    assert torch.allclose(difference[real], features.written(change)[real], atol=1e-4)
    assert real[0].any()
    assert not torch.allclose(other, logits, atol=1e-3)


def test_edits_of_features_leave_padding_alone():
    model, at = model_of("nano", n_layers=2), "decoder.blocks.0.resid_post"
    attach(model.network, features_at(at, at))
    plain, _ = read(model)
    seen, _ = read(model, {f"{at}.features": 3.0})
    assert torch.equal(seen[at][1, 1:], plain[at][1, 1:])
    assert not torch.equal(seen[at][1, 0], plain[at][1, 0])


def test_two_sets_need_two_names():
    model, at = model_of("nano", n_layers=2), "decoder.blocks.0.resid_post"
    with pytest.raises(UserError, match="got two; give one another name"):
        attach(model.network, features_at(at, at), features_at(at, at))
    attach(model.network, features_at(at, at), features_at(at, at, name="others"))
    seen, _ = read(model, {f"{at}.others[f=1]": 2.0})
    assert f"{at}.features" in seen


def test_features_of_another_place_are_refused():
    model, at = model_of("nano", n_layers=2), "decoder.blocks.0.ffn.post"
    with pytest.raises(UserError, match=r"decoder.blocks.9.resid_post: expected features of a value of this network"):
        attach(model.network, features_at("decoder.blocks.9.resid_post", "decoder.blocks.9.resid_post"))
    attach(model.network, features_at(at, at))
    with pytest.raises(UserError, match=r"the features read \d+ numbers, got"):
        read(model)


def test_what_runs_a_part_of_the_network_does_not_need_them():
    model = model_of("nano", n_layers=2)
    attach(model.network, features_at("decoder.blocks.0.resid_pre", "decoder.blocks.0.resid_pre"))
    tokens, site = model.reader.inputs("one two three", None, model.generation), "decoder.blocks.1.attn.z[h=1]"
    found = effects(model.network, tokens, [site])[site]
    attach(model.network)
    assert found == effects(model.network, tokens, [site])[site] > 0


@pytest.mark.parametrize(
    "at",
    [
        "decoder.blocks.0.resid_post",
        "decoder.blocks.1.ffn_norm.out",
        "decoder.blocks.0.attn.out",
        "decoder.blocks.1.resid_cross",
    ],
)
def test_edits_without_a_trace_are_those_of_a_trace(at: str):
    model = model_of("demo", n_layers=2)
    change = torch.randn(D, generator=torch.Generator().manual_seed(1))
    edit = {at: lambda value: value + change}
    _, expected = model.trace("one two three", "four five", edit=edit)
    with edited(model.network, edit):
        found = model.logits("one two three", "four five")
    assert torch.allclose(found, expected, atol=1e-4)
    assert not torch.allclose(found, model.logits("one two three", "four five"), atol=1e-3)


def test_a_text_is_written_under_an_edit():
    model, at = model_of("nano", n_layers=2, positions={"kind": "rotary"}), "decoder.blocks.1.resid_post"
    attach(model.network, features_at(at, at))
    settings = {"temperature": 0.0, "max_new_tokens": 20, "beams": 1, "n_best": 1}
    plain = model.generate("one two", **settings)
    with model.tracing({f"{at}.features[f=3]": 90.0}):
        expected = model.generate("one two", **settings)
    with edited(model.network, {f"{at}.features[f=3]": 90.0}):
        found = model.generate("one two", **settings)
    assert found == expected != plain


def test_a_value_inside_a_fused_kernel_needs_a_trace():
    model = model_of("nano", n_layers=2)
    model.network.decoder.blocks[0].attn.kernel = "fused"  # type: ignore[union-attr]
    edit = edited(model.network, {"decoder.blocks.0.attn.weights": 0.0})
    with pytest.raises(UserError, match="edited, but no value has this address"), edit:
        model.logits("one two three")
