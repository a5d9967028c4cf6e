"""LayerNorm and RMSNorm: the equations, PyTorch's kernels, and the same numbers when seen."""

import pytest
import torch

from clearhead.errors import UserError
from clearhead.model.norm import LayerNorm, RMSNorm, build_norm
from clearhead.trace import trace
from tests.model import small
from tests.model.small import assert_close, assign

X = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0)) * 3 + 1


def test_layer_norm_is_torch_s():
    ours, theirs = LayerNorm(8, eps=1e-3, bias=True), torch.nn.LayerNorm(8, eps=1e-3)
    assign(ours, weight=torch.randn(8), bias=torch.randn(8))
    theirs.load_state_dict(ours.state_dict())
    assert_close(ours(X), theirs(X))
    mean, variance = X.mean(-1, keepdim=True), X.var(-1, keepdim=True, correction=0)
    assert_close(ours(X), (X - mean) / (variance + 1e-3).sqrt() * ours.gain + ours.get_parameter("bias"))


def test_rms_norm_is_llama_s():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    ours, theirs = RMSNorm(8, eps=1e-3), llama.LlamaRMSNorm(8, eps=1e-3)
    assign(ours, weight=torch.randn(8))
    theirs.load_state_dict(ours.state_dict())
    assert_close(ours(X), theirs(X))


@pytest.mark.parametrize(
    "norm", [LayerNorm(8, eps=1e-3, bias=True), LayerNorm(8, eps=1e-3, bias=False), RMSNorm(8, eps=1e-3)]
)
def test_seen_is_unseen(norm: LayerNorm | RMSNorm):
    with trace(norm) as t:
        seen = norm(X)
    assert_close(seen, norm(X))
    assert torch.equal(t["out"], seen)
    assert t["rstd"].shape == (2, 3, 1)
    assert ("mean" in t) == isinstance(norm, LayerNorm)


def test_config_decides():
    layer = build_norm(small.stack(norm_eps=1e-3))
    assert isinstance(layer, LayerNorm)
    assert (layer.eps, layer.bias is None) == (1e-3, False)
    without = build_norm(small.stack(norm_bias=False))
    assert isinstance(without, LayerNorm)
    assert without.bias is None
    assert isinstance(build_norm(small.stack(norm="rms")), RMSNorm)
    assert build_norm(small.stack(), 5).gain.shape == (5,)


@pytest.mark.parametrize("value", [2.0, torch.nn.Parameter(X[0, 0])])
@pytest.mark.parametrize("name", ["gain", "derived"])
def test_a_norm_cannot_set_what_follows_from_its_weight(name: str, value: object):
    with pytest.raises(UserError, match=rf"^RMSNorm\.{name}: expected no such field.*try self\.my_{name}$"):
        setattr(RMSNorm(8, eps=1e-3), name, value)
