"""Attention and feed-forward side by side, of one norm or of two."""

import pytest
import torch

from clearhead import config as c
from clearhead.model.norm import LayerNorm
from clearhead.trace import trace
from tests.model import small
from tests.model.mechanism import properties_of
from tests.model.small import assert_close, ids

ONE, TWO = {"parallel": "one_norm"}, {"parallel": "two_norms"}

test_properties = properties_of(
    ONE | {"positions": c.Rotary(), "n_kv_heads": 2}, TWO | {"norm": "rms", "gated": True}, ONE | {"first_norm": False}
)


@pytest.mark.parametrize("changes", [ONE, TWO], ids=["one", "two"])
def test_both_branches_read_the_block_s_input(changes: dict[str, str]) -> None:
    network, at = small.decoder(**changes, n_layers=3), "decoder.blocks.1"
    with torch.no_grad(), trace(network) as seen:
        network(ids(2, 5))
    pre = seen[f"{at}.resid_pre"]
    norms = [network.get_submodule(f"{at}.{'attn' if changes == ONE else name}_norm") for name in ("attn", "ffn")]
    assert all(isinstance(norm, LayerNorm) for norm in norms)
    assert_close(seen[f"{at}.attn_norm.out"], norms[0](pre))
    assert_close(seen[f"{at}.ffn.out"], network.get_submodule(f"{at}.ffn")(norms[1](pre)))
    assert_close(seen[f"{at}.resid_post"], pre + seen[f"{at}.attn.out"] + seen[f"{at}.ffn.out"])


def test_one_norm_has_one() -> None:
    assert not any("ffn_norm" in name for name, _ in small.decoder(**ONE).named_parameters())
    with pytest.raises(ValueError, match="parallel='one_norm' needs norm_place='pre'"):
        small.stack(**ONE, norm_place="post")


def test_two_norms_are_gpt_neox_s() -> None:
    """A tiny random GPT-NeoX block and ours with its weights: the same states."""
    neox = pytest.importorskip("transformers.models.gpt_neox.modeling_gpt_neox")
    config = neox.GPTNeoXConfig(
        hidden_size=16, intermediate_size=24, num_attention_heads=4, num_hidden_layers=1, vocab_size=small.VOCAB,
        rotary_pct=1.0, hidden_act="gelu", attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    reference = neox.GPTNeoXForCausalLM(config).eval()
    ours = small.decoder(**TWO, n_layers=1, positions=c.Rotary(), activation="gelu")
    layer = reference.gpt_neox.layers[0]
    fused = layer.attention.query_key_value
    weight, bias = fused.weight.view(4, 3, 4, 16), fused.bias.view(4, 3, 4)
    named = {
        "decoder.embed.tokens": (reference.gpt_neox.embed_in, None),
        "decoder.blocks.0.attn_norm": (layer.input_layernorm, True),
        "decoder.blocks.0.ffn_norm": (layer.post_attention_layernorm, True),
        "decoder.blocks.0.attn.out": (layer.attention.dense, True),
        "decoder.blocks.0.ffn.up": (layer.mlp.dense_h_to_4h, True),
        "decoder.blocks.0.ffn.down": (layer.mlp.dense_4h_to_h, True),
        "decoder.final_norm": (reference.gpt_neox.final_layer_norm, True),
    }
    with torch.no_grad():
        for path, (module, has_bias) in named.items():
            small.assign(ours.get_submodule(path), weight=module.weight, **({"bias": module.bias} if has_bias else {}))
        for i, side in enumerate("qkv"):
            linear = ours.get_submodule(f"decoder.blocks.0.attn.{side}")
            small.assign(linear, weight=weight[:, i].reshape(16, 16), bias=bias[:, i].reshape(16))
        states, _ = ours.states(ids(2, 7))
        assert_close(states, reference.gpt_neox(ids(2, 7)).last_hidden_state)
