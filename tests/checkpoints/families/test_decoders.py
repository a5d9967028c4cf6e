"""What the comparison with the reference cannot see of the later decoders: files of the hub, and refusals."""

from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import load
from clearhead.checkpoints.families import family_for, family_of
from clearhead.checkpoints.families.decoders.gpt import GPTJ_FIELDS
from clearhead.checkpoints.weights import mapping
from clearhead.checkpoints.weights.fields import Field
from clearhead.checkpoints.weights.mapping import fused, paired
from clearhead.config import LongScaling, ModelConfig, NoPositions, Rotary, StackConfig
from clearhead.errors import UserError
from tests.parity.harness import Case, reference, round_trip

FULL, LOCAL = "full_attention", "sliding_attention"


def read(kind: str, **document: Any) -> ModelConfig:
    return family_of({"model_type": kind, **document}, where="config.json").read(
        {"model_type": kind, **document}, where="config.json"
    )[0]


def stack(kind: str, **document: Any) -> StackConfig:
    found = read(kind, **document).decoder
    assert found is not None
    return found


# The sizes of pythia-70m, as its file names them.
PYTHIA = {
    "architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "gelu",
    "hidden_size": 512,
    "initializer_range": 0.02, "intermediate_size": 2048, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
    "num_attention_heads": 8, "num_hidden_layers": 6, "rotary_emb_base": 10000, "rotary_pct": 0.25,
    "tie_word_embeddings": False, "torch_dtype": "float16", "use_cache": True, "use_parallel_residual": True,
    "vocab_size": 50304,
}  # fmt: skip


def test_older_names_of_the_angles() -> None:
    found = stack("gpt_neox", **PYTHIA)
    assert (found.parallel, found.positions) == ("two_norms", Rotary(fraction=0.25, trained_length=2048))
    written = family_for(read("gpt_neox", **PYTHIA))
    assert written is not None
    assert written[0].model_type == "gpt_neox"
    assert read(**{"kind": written[2]["model_type"]} | written[2]) == read("gpt_neox", **PYTHIA)


@pytest.mark.parametrize("width", range(1, 130))
def test_a_number_of_rotated_components_is_kept(width: int) -> None:
    field = next(one for one in GPTJ_FIELDS if isinstance(one, Field) and one.theirs == "rotary_dim")
    for rotated in range(1, width + 1):
        share = field.read(rotated, {"n_embd": width, "n_head": 1})
        assert Rotary(fraction=share).rotated(width) == rotated


def test_a_class_under_its_authors_name() -> None:
    """The fields of mpt-7b's file."""
    inner = {
        "alibi": True,
        "alibi_bias_max": 8,
        "attn_impl": "torch",
        "attn_pdrop": 0,
        "clip_qkv": None,
        "qk_ln": False,
    }
    inner |= {"attn_type": "multihead_attention", "attn_uses_sequence_id": False, "prefix_lm": False}
    document = {
        "architectures": ["MPTForCausalLM"],
        "attn_config": inner,
        "d_model": 4096,
        "n_heads": 32,
        "n_layers": 32,
    }
    document |= {"expansion_ratio": 4, "no_bias": True, "norm_type": "low_precision_layernorm", "vocab_size": 50_432}
    assert read("mpt", **document) == read("mpt", **document | {"architectures": ["MptForCausalLM"]})


def test_layers_that_do_not_rotate() -> None:
    assert stack("smollm3").rotary_layers == tuple(i for i in range(36) if (i + 1) % 4)
    cohere = stack("cohere2", num_hidden_layers=5, sliding_window=8)
    assert cohere.rotary_layers == cohere.window_layers == (0, 1, 2, 4)


def test_angles_of_long_texts() -> None:
    factors = {"short_factor": [1.0, 2.0], "long_factor": [3.0, 4.0]}
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2}
    lengths = {"max_position_embeddings": 131_072, "original_max_position_embeddings": 4096}
    found = stack("phi3", **sizes, **lengths, rope_scaling={"type": "su", **factors}).positions
    assert isinstance(found, Rotary)
    assert isinstance(found.scaling, LongScaling)
    assert (found.longest, found.scaling.divisors, found.scaling.longer) == (4096, (1.0, 2.0), (3.0, 4.0))
    assert found.scaling.attention_factor == pytest.approx(1.190, abs=1e-3)
    with pytest.raises(UserError, match="expected 2, half of the rotated components, got 3"):
        stack("phi3", **sizes, **lengths, rope_scaling={"type": "su", **factors, "short_factor": [1.0, 2.0, 3.0]})


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (
            "opt",
            {"word_embed_proj_dim": 512, "architectures": ["OPTModel"]},
            "word_embed_proj_dim: expected 768, which is hidden_size, got 512",
        ),
        ("opt", {"layer_norm_elementwise_affine": False}, "layer_norm_elementwise_affine: expected True"),
        ("falcon", {"alibi": True}, "alibi: expected False"),
        ("falcon", {"multi_query": False, "num_kv_heads": 1}, "num_kv_heads: expected num_attention_heads=71"),
        ("falcon", {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn: expected 1, or 2 with"),
        ("falcon", {"new_decoder_architecture": True, "parallel_attn": False}, "num_ln_in_parallel_attn: expected 1"),
        ("bloom", {"apply_residual_connection_post_layernorm": True}, "apply_residual_.*: expected False"),
        ("bloom", {"slow_but_exact": True}, "slow_but_exact: expected False"),
        ("mpt", {"attn_config": {"alibi": False}}, "attn_config: expected alibi=True"),
        ("mpt", {"attn_config": {"alibi_bias_max": 16}}, "attn_config: expected alibi_bias_max=8"),
        ("mpt", {"attn_config": {"clip_qkv": 6.0}}, "attn_config: expected clip_qkv=None"),
        ("mpt", {"attn_config": 8}, "attn_config: expected another kind"),
        ("mpt", {"expansion_ratio": 3}, "expansion_ratio: expected 4"),
        ("gptj", {"rotary_dim": 300}, "rotary_dim: expected 1 to 256"),
        ("gptj", {"rotary_dim": None}, "rotary_dim: expected a whole number"),
        ("codegen", {"n_head": 6, "n_embd": 96, "rotary_dim": 8}, "n_head: expected a multiple of 4"),
        ("gpt_neo", {"attention_types": [[["global"], 3]]}, "attention_types: expected global or local for each of"),
        ("gpt_neo", {"attention_types": [[["wide"], 24]]}, "attention_types: expected global or local"),
        ("gpt_neo", {"attention_types": [["global"], 2]}, "attention_types: expected"),
        ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention: expected False"),
        ("gemma2", {"layer_types": [LOCAL]}, "layer_types: expected full_attention or sliding_attention for each"),
        ("gemma2", {"sliding_window": None}, "expected a sliding_window"),
        ("gemma3_text", {"rope_parameters": {FULL: {"rope_type": "ntk"}}}, "rope_parameters: expected rope_type"),
        ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping: expected None"),
        ("cohere", {"use_qk_norm": True}, "use_qk_norm: expected False"),
        ("stablelm", {"qk_layernorm": True}, "qk_layernorm: expected False"),
        ("smollm3", {"use_sliding_window": True}, "use_sliding_window: expected False"),
        ("smollm3", {"no_rope_layers": [1, 0]}, "no_rope_layers: expected another kind"),
        ("smollm3", {"no_rope_layers": [0] * 36}, "rotary_layers=.*rotates in no layer|no_rope_layers"),
        ("phi3", {"rope_scaling": {"type": "linear", "factor": 2.0}, "hidden_act": "mish"}, "hidden_act: expected"),
        ("glm", {"partial_rotary_factor": 0.001}, "rope_parameters|head_dim"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(kind: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read(kind, **changes)
    assert "\n" not in str(caught.value)


def test_rows_in_another_order() -> None:
    rule = paired(fused("w", ["q", "k"], rows=[4, 4], groups=2), 1, width=4, rotated=4)
    whole = torch.arange(16.0)
    found = mapping.load([rule], {"w": whole}, where="f").tensors
    assert found["q"].tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    assert found["k"].tolist() == [4, 6, 5, 7, 12, 14, 13, 15]
    assert torch.equal(mapping.save([rule], found)["w"], whole)
    with pytest.raises(UserError, match=r"f:w: expected 16 rows, got shape \[15\]"):
        mapping.load([rule], {"w": whole[:15]}, where="f")


def test_no_positions_is_not_refused_twice() -> None:
    with pytest.raises(ValueError, match="needs rotary positions, got 'none'"):
        StackConfig.model_validate({**dict(stack("smollm3")), "positions": NoPositions()})


def test_a_narrow_token_table_is_read_with_its_layers(tmp_path: Path) -> None:
    shape = {"vocab_size": 60, "hidden_size": 24, "ffn_dim": 40, "num_hidden_layers": 2, "num_attention_heads": 3}
    own = {"word_embed_proj_dim": 10, "do_layer_norm_before": False, "max_position_embeddings": 32}
    theirs = reference(Case("opt", "base", "OPTForCausalLM", {**shape, **own}))
    theirs.save_pretrained(tmp_path / "theirs")
    ours, ids = load(tmp_path / "theirs"), torch.randint(3, 60, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(ours.network(ids), theirs(ids).logits, rtol=1e-5, atol=1e-5)
    round_trip(theirs, ours, tmp_path / "ours")
    with pytest.raises(UserError, match="word_embed_proj_dim: expected 24, which is hidden_size, got 10"):
        read("opt", **shape, **own, architectures=["OPTModel"])


def test_a_root_of_a_negative_number_is_refused() -> None:
    with pytest.raises(UserError, match=r"query_pre_attn_scalar: expected another kind of value, got -1 "):
        read("gemma2", query_pre_attn_scalar=-1)
