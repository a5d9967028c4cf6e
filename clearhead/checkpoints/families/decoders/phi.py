"""The decoders of Li et al. 2023 (both branches read one norm) and Abdin et al. 2024 (Llama's, matrices fused)."""

from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.decoders.decoder_heads import language
from clearhead.checkpoints.families.decoders.llama import CONSTANTS, heads, sizes
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.rotary import WITH_LONG, modern, rotary
from clearhead.checkpoints.weights.fields import Values, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, rename
from clearhead.checkpoints.weights.rows import fused
from clearhead.config import ModelConfig


def _rules(_: ModelConfig) -> Sequence[Rule]:
    ours = "decoder.blocks.{i}"
    attention = {
        "q_proj": "q", "k_proj": "k", "v_proj": "v", "dense": "out", "q_layernorm": "q_norm", "k_layernorm": "k_norm"
    }  # fmt: skip
    return (
        rename("embed_tokens.weight", "decoder.embed.tokens.weight"),
        rename("layers.{i}.input_layernorm.{p}", f"{ours}.attn_norm.{{p}}"),
        *(rename(f"layers.{{i}}.self_attn.{a}.{{p}}", f"{ours}.attn.{b}.{{p}}") for a, b in attention.items()),
        rename("layers.{i}.mlp.fc1.{p}", f"{ours}.ffn.up.{{p}}"),
        rename("layers.{i}.mlp.fc2.{p}", f"{ours}.ffn.down.{{p}}"),
        rename("final_layernorm.{p}", "decoder.final_norm.{p}"),
        ignore("rotary_emb.inv_freq", "layers.{i}.self_attn.rotary_emb.inv_freq"),
    )


def fused_rules(config: ModelConfig) -> Sequence[Rule]:
    """Queries, keys and values in one matrix; gate and up in another."""
    ours, stack = "decoder.blocks.{i}", config.output
    rows = [n * stack.head_width for n in (stack.n_heads, stack.kv_heads, stack.kv_heads)]
    return (
        rename("embed_tokens.weight", "decoder.embed.tokens.weight"),
        rename("layers.{i}.input_layernorm.{p}", f"{ours}.attn_norm.{{p}}"),
        fused("layers.{i}.self_attn.qkv_proj.{p}", [f"{ours}.attn.{side}.{{p}}" for side in "qkv"], rows=rows),
        rename("layers.{i}.self_attn.o_proj.{p}", f"{ours}.attn.out.{{p}}"),
        rename("layers.{i}.post_attention_layernorm.{p}", f"{ours}.ffn_norm.{{p}}"),
        gate_and_up(config),
        rename("layers.{i}.mlp.down_proj.{p}", f"{ours}.ffn.down.{{p}}"),
        rename("norm.{p}", "decoder.final_norm.{p}"),
    )


def gate_and_up(config: ModelConfig) -> Rule:
    """The gate above the up matrix."""
    ours = [f"decoder.blocks.{{i}}.ffn.{name}.{{p}}" for name in ("gate", "up")]
    return fused("layers.{i}.mlp.gate_up_proj.{p}", ours, rows=[config.output.d_ff] * 2)


FAMILY = Family(
    model_type="phi",
    constants={"decoder.input.kind": "tokens", "decoder.parallel": "one_norm"},
    fields=(
        *sizes(
            vocab_size=51_200,
            hidden_size=2048,
            intermediate_size=8192,
            layers=24,
            kv_heads=None,
            hidden_act="gelu_new",
            eps=1e-5,
            eps_field="layer_norm_eps",
            angles=rotary(max_length=2048, fraction=0.5),
        ),
        same("resid_pdrop", "decoder.dropout", default=0.0),
        same("embd_pdrop", "decoder.embed_dropout", default=0.0),
        same("qk_layernorm", "decoder.qk_norm", default=False),
    ),
    rules=_rules,
    heads=(language("PhiForCausalLM", "model.", tied=False, bias=True), *heads("Phi")[1:4]),
    modernize=modern,
)


def _modern(document: dict[str, Any]) -> dict[str, Any]:
    """Earlier names of the scaling."""
    document = modern(document)
    said = document["rope_parameters"]
    if isinstance(said, dict):
        kind = said.get("rope_type", said.get("type"))
        document["rope_parameters"] = {**said, "rope_type": "longrope"} if kind in ("su", "yarn") else said
    return document


def _original(_: Any, ours: Values) -> int:
    scaling = ours["decoder"]["positions"]["scaling"]
    return 4096 if scaling is None else scaling["original_length"]


PHI3 = Family(
    model_type="phi3",
    constants=CONSTANTS | {"decoder.embed_dropout": 0.0},
    fields=(
        *sizes(
            vocab_size=32_064,
            hidden_size=3072,
            intermediate_size=8192,
            kv_heads=None,
            eps=1e-5,
            angles=rotary(max_length=4096, fraction=1.0, scalings=WITH_LONG),
        ),
        computed("original_max_position_embeddings", write=_original, default=4096, like=4096),
        same("resid_pdrop", "decoder.dropout", default=0.0),
        computed("sliding_window", "decoder.window", default=None),
        # The library defines it, but drops nothing there.
        ignored("embd_pdrop"),
    ),
    rules=fused_rules,
    heads=heads("Phi3")[:4],
    modernize=_modern,
)
