"""Blocks of one stack that differ: a first without its norm, windows and rotary bases by layer."""

from typing import Any

import pytest
import torch
from torch import nn

from clearhead import config as c
from clearhead.model import Tokens, Transformer
from clearhead.model import attention as attention_module
from clearhead.model.norm import LayerNorm
from clearhead.trace import trace
from tests.model import small
from tests.model.mechanism import properties_of
from tests.model.small import assert_close, ids, sequences


def test_without_first_norm_attention_reads_its_input() -> None:
    network = small.decoder(first_norm=False)
    assert not any(name.startswith("decoder.blocks.0.attn_norm") for name, _ in network.named_parameters())
    with trace(network) as t:
        network(ids(2, 5))
    addresses = set(t)
    assert not any(address.startswith("decoder.blocks.0.attn_norm") for address in addresses)
    assert {"decoder.blocks.1.attn_norm.out", "decoder.blocks.0.ffn_norm.out"} <= addresses
    query = network.get_submodule("decoder.blocks.0.attn.q")
    expected = query(t["decoder.blocks.0.resid_pre"]).unflatten(-1, (4, 4)).transpose(1, 2)
    assert_close(t["decoder.blocks.0.attn.q"], expected)


def test_windowed_layers_turn_by_their_own_angles() -> None:
    changes = {"positions": c.Rotary(base=50.0), "window": 3, "window_layers": (1,)}
    same, other = small.encoder(**changes), small.encoder(**changes, window_positions=c.Rotary(base=7.0))
    plain = small.encoder(positions=c.Rotary(base=7.0))
    assert [name for name, _ in same.named_parameters()] == [name for name, _ in other.named_parameters()]
    at, tokens = "encoder.blocks.{}.attn.q", ids(1, 6)
    with trace(same) as a:
        same(tokens)
    with trace(other) as b:
        other(tokens)
    assert torch.equal(a[at.format(0)], b[at.format(0)])
    # The same states into the second layer, so that only its angles differ.
    with trace(plain, edit={"encoder.blocks.1.resid_pre": b["encoder.blocks.1.resid_pre"]}) as reference:
        plain(tokens)
    assert torch.equal(b[at.format(1)], reference[at.format(1)])
    assert not torch.allclose(a[at.format(1)], b[at.format(1)])


def modern_bert(modern: Any) -> tuple[nn.Module, Transformer]:
    """A tiny random ModernBERT, global in every third layer, and ours with its weights."""
    config = modern.ModernBertConfig(
        vocab_size=small.VOCAB,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=5,
        num_attention_heads=2,
        local_attention=6,
        pad_token_id=0,
        attn_implementation="eager",
        tie_word_embeddings=True,
    )
    theirs = modern.ModernBertForMaskedLM(config)
    stack = c.StackConfig(
        input=c.TokenInput(vocab_size=small.VOCAB, norm=True),
        d_model=16,
        n_layers=5,
        n_heads=2,
        d_ff=24,
        positions=c.Rotary(base=160_000.0),
        window=4,
        window_layers=(1, 2, 4),
        window_positions=c.Rotary(base=10_000.0),
        first_norm=False,
        activation="gelu",
        gated=True,
        bias=False,
    )
    head = c.LanguageHead(transform=True, transform_bias=False, bias=True)
    ours = small.shaken(Transformer(c.ModelConfig(encoder=stack, head=head)))
    weights = dict(ours.named_parameters(remove_duplicate=False))

    def block(i: int) -> dict[str, torch.Tensor]:
        at = f"encoder.blocks.{i}"
        norm = {} if i == 0 else {"attn_norm.weight": weights[f"{at}.attn_norm.weight"]}
        return norm | {
            "attn.Wqkv.weight": torch.cat([weights[f"{at}.attn.{name}.weight"] for name in "qkv"]),
            "attn.Wo.weight": weights[f"{at}.attn.out.weight"],
            "mlp_norm.weight": weights[f"{at}.ffn_norm.weight"],
            "mlp.Wi.weight": torch.cat([weights[f"{at}.ffn.{name}.weight"] for name in ("gate", "up")]),
            "mlp.Wo.weight": weights[f"{at}.ffn.down.weight"],
        }

    theirs.load_state_dict(
        {f"model.layers.{i}.{name}": weight for i in range(5) for name, weight in block(i).items()}
        | {
            "model.embeddings.tok_embeddings.weight": weights["encoder.embed.tokens.weight"],
            "model.embeddings.norm.weight": weights["encoder.embed.norm.weight"],
            "model.final_norm.weight": weights["encoder.final_norm.weight"],
            "head.dense.weight": weights["head.dense.weight"],
            "head.norm.weight": weights["head.norm.weight"],
            "decoder.weight": weights["head.output.weight"],
            "decoder.bias": weights["head.output.bias"],
        }
    )
    return theirs.eval(), ours


@pytest.mark.parametrize("kernel", ["explicit", "fused"])
def test_local_and_global_layers_are_modern_bert_s(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours = modern_bert(pytest.importorskip("transformers.models.modernbert.modeling_modernbert"))
    monkeypatch.setattr(attention_module, "EXPLICIT_UP_TO", 10**9 if kernel == "explicit" else 0)
    batch = sequences(17, 4, 11)
    with torch.no_grad():
        for left in (False, True):
            tokens = Tokens.pad(batch, left=left)
            assert tokens.valid is not None
            reference = theirs(tokens.ids, attention_mask=tokens.valid.long(), output_hidden_states=True)
            assert_close(tokens.real(ours(tokens)), tokens.real(reference.logits))
            with trace(ours) as t:
                ours(tokens)
            names = [f"encoder.blocks.{i}.resid_pre" for i in range(5)] + ["encoder.final_norm.out"]
            for name, states in zip(names, reference.hidden_states, strict=True):
                assert_close(tokens.real(t[name]), tokens.real(states))


# --- parallel ------------------------------------------------------------------------------------------------------


ONE, TWO = {"parallel": "one_norm"}, {"parallel": "two_norms"}

test_parallel_properties = properties_of(
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
