"""Where the norm goes, and whole blocks against the well-known implementations."""

from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Layout, Tokens
from clearhead.model.attention_bias import AttentionBias
from clearhead.model.block import Block
from clearhead.model.positions import RotaryEncoding
from clearhead.model.residual import Residual
from tests.model import small
from tests.model.small import assert_close, ids
from tests.model.test_attention import causal_mask, copy_projections, randomised

X = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(0))


def half(x: Tensor) -> Tensor:
    return x.flip(-1) / 2


@pytest.mark.parametrize("place", ["pre", "post", "sandwich"])
def test_equation(place: str) -> None:
    residual = Residual(small.stack(norm_place=place))
    norm, second = residual.norms()
    assert norm is not None
    small.assign(norm, weight=torch.rand(16), bias=torch.rand(16))
    assert (second is not None) == (place == "sandwich")
    if second is not None:
        small.assign(second, weight=torch.rand(16), bias=torch.rand(16))
        expected = X + second(half(norm(X)))
    else:
        expected = X + half(norm(X)) if place == "pre" else norm(X + half(X))
    assert_close(residual(X, half, (norm, second), False), expected)


def test_dropout_falls_on_the_branch_alone() -> None:
    residual = Residual(small.stack(dropout=0.5))
    out = residual(X, torch.ones_like, residual.norms(), True)
    branch = (out - X).round(decimals=4)
    assert set(branch.unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("window", [4096, 3])
def test_sandwich_soft_cap_and_grouped_heads_are_gemma2_s(window: int) -> None:
    gemma = pytest.importorskip("transformers.models.gemma2.modeling_gemma2")
    config = gemma.Gemma2Config(
        hidden_size=32,
        intermediate_size=24,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        query_pre_attn_scalar=20,
        attn_logit_softcapping=1.5,
        sliding_window=window,
        attn_implementation="eager",
    )
    theirs = randomised(gemma.Gemma2DecoderLayer(config, 0))
    changes: dict[str, Any] = dict(d_model=32, n_kv_heads=2, d_head=12, attn_scale=20**-0.5, soft_cap=1.5, bias=False)
    changes |= dict(norm="rms", norm_place="sandwich", norm_eps=1e-6, gated=True, activation="gelu_tanh")
    ours = Block(small.stack(**changes, positions=c.Rotary(), window=window), cross=False)
    copy_projections(ours.attn, theirs.get_submodule("self_attn"))
    state = theirs.get_submodule("mlp").state_dict()
    ours.ffn.load_state_dict({name.replace("_proj", ""): value for name, value in state.items()})
    for mine, name in {
        "attn_norm": "input_layernorm",
        "attn_out_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "ffn_out_norm": "post_feedforward_layernorm",
    }.items():  # their weights are stored less 1
        small.assign(ours.get_submodule(mine), weight=1 + theirs.get_parameter(f"{name}.weight"))
    x = torch.randn(2, 9, 32)
    layout = Layout.of(Tokens(ids(2, 9)))
    attn_bias = AttentionBias.between(
        layout, layout, causal=True, window=window, positions=RotaryEncoding(c.Rotary(), 12)
    )
    rotary = gemma.Gemma2RotaryEmbedding(config)(x, torch.arange(9)[None])
    reference = theirs(x, position_embeddings=rotary, attention_mask=causal_mask(9, window))
    assert_close(ours(x, layout, attn_bias), reference[0] if isinstance(reference, tuple) else reference)
