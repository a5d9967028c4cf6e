"""The decoders of Le Scao et al. 2022 and MosaicML 2023: ALiBi, queries, keys and values in one matrix."""

from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.decoders.decoder_heads import language, others
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import Alias, Field, Only, Values, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, rename, split
from clearhead.checkpoints.weights.rows import fused
from clearhead.config import ModelConfig
from clearhead.errors import UserError


def _width(theirs: str, default: int) -> tuple[Field, Field]:
    """The width of the model, which is a quarter of the feed-forward width."""
    return (
        same(theirs, "decoder.d_model", default=default),
        computed(
            theirs,
            "decoder.d_ff",
            read=lambda width, _: 4 * width,
            write=lambda _, ours: ours["decoder"]["d_model"],
            default=default,
            like=default,
        ),
    )


def _modern(document: dict[str, Any]) -> dict[str, Any]:
    older = {"n_embed": "hidden_size", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}
    return {older.get(name, name): value for name, value in document.items() if value is not None or name not in older}


def rules(config: ModelConfig) -> Sequence[Rule]:
    """One matrix holds each head's queries, keys and values in turn."""
    ours, stack = "decoder.blocks.{i}", config.output
    return (
        rename("word_embeddings.weight", "decoder.embed.tokens.weight"),
        rename("word_embeddings_layernorm.{p}", "decoder.embed.norm.{p}"),
        rename("h.{i}.input_layernorm.{p}", f"{ours}.attn_norm.{{p}}"),
        fused(
            "h.{i}.self_attention.query_key_value.{p}",
            [f"{ours}.attn.{side}.{{p}}" for side in "qkv"],
            rows=[stack.head_width] * 3,
            groups=stack.n_heads,
        ),
        rename("h.{i}.self_attention.dense.{p}", f"{ours}.attn.out.{{p}}"),
        rename("h.{i}.post_attention_layernorm.{p}", f"{ours}.ffn_norm.{{p}}"),
        rename("h.{i}.mlp.dense_h_to_4h.{p}", f"{ours}.ffn.up.{{p}}"),
        rename("h.{i}.mlp.dense_4h_to_h.{p}", f"{ours}.ffn.down.{{p}}"),
        rename("ln_f.{p}", "decoder.final_norm.{p}"),
    )


FAMILY = Family(
    model_type="bloom",
    constants={
        "decoder.input.kind": "tokens",
        "decoder.input.norm": True,
        "decoder.positions.kind": "alibi",
        "decoder.activation": "gelu_tanh",
        "decoder.embed_dropout": 0.0,
    },
    fields=(
        same("vocab_size", "decoder.input.vocab_size", default=250_880),
        *_width("hidden_size", 64),
        same("n_layer", "decoder.n_layers", default=2),
        same("n_head", "decoder.n_heads", default=8),
        same("layer_norm_epsilon", "decoder.norm_eps", default=1e-5),
        same("initializer_range", "init.std", default=0.02),
        same("hidden_dropout", "decoder.dropout", default=0.0),
        same("attention_dropout", "decoder.attn_dropout", default=0.0),
        Only("apply_residual_connection_post_layernorm", False),
        # In parts, the product of the output matrix loses its bias there.
        Only("slow_but_exact", False),
        Alias("num_hidden_layers", of="n_layer"),
        Alias("num_attention_heads", of="n_head"),
        ignored(
            "pretraining_tp", "seq_length", "offset_alibi", "skip_bias_add*", "*_fusion", "attention_softmax_in_fp32"
        ),
    ),
    rules=rules,
    heads=(language("BloomForCausalLM", "transformer."), *others("Bloom", "transformer.")),
    modernize=_modern,
)

# --- MPT -------------------------------------------------------------------------------------------------------------

ATTENTION: dict[str, Any] = {
    "attn_type": "multihead_attention", "attn_pdrop": 0, "attn_impl": "torch", "clip_qkv": None,
    "softmax_scale": None, "prefix_lm": False, "qk_ln": False, "attn_uses_sequence_id": False, "alibi": True,
    "alibi_bias_max": 8,
}  # fmt: skip
"""The fields of attn_config and their defaults."""
READ = ("attn_pdrop", "softmax_scale", "attn_impl")


def _inner(said: Values | None) -> dict[str, Any]:
    """attn_config with defaults. Raises UserError for a mechanism that is not here."""
    values = ATTENTION | {name: value for name, value in (said or {}).items() if name in ATTENTION}
    for name, value in values.items():
        if name not in READ and value not in (ATTENTION[name], None):
            raise UserError(
                f"expected {name}={ATTENTION[name]!r}, the only value that is supported, got {short(value)}"
            )
    return values


def _written(_: Any, ours: Values) -> dict[str, Any]:
    stack = ours["decoder"]
    # There the dropout is a whole number.
    return ATTENTION | {"softmax_scale": stack["attn_scale"], "attn_pdrop": int(stack["attn_dropout"])}


def _of_attention(name: str, *ours: str) -> Field:
    """A field of attn_config."""
    return computed("attn_config", *ours, read=lambda said, _: _inner(said)[name], write=_written, default=None)


def mpt_rules(_: ModelConfig) -> Sequence[Rule]:
    """Queries, keys and values one below the other; no bias anywhere."""
    ours = "decoder.blocks.{i}"
    return (
        rename("wte.weight", "decoder.embed.tokens.weight"),
        rename("blocks.{i}.norm_1.weight", f"{ours}.attn_norm.weight"),
        split("blocks.{i}.attn.Wqkv.weight", [f"{ours}.attn.{side}.weight" for side in "qkv"]),
        rename("blocks.{i}.attn.out_proj.weight", f"{ours}.attn.out.weight"),
        rename("blocks.{i}.norm_2.weight", f"{ours}.ffn_norm.weight"),
        rename("blocks.{i}.ffn.up_proj.weight", f"{ours}.ffn.up.weight"),
        rename("blocks.{i}.ffn.down_proj.weight", f"{ours}.ffn.down.weight"),
        rename("norm_f.weight", "decoder.final_norm.weight"),
    )


MPT = Family(
    model_type="mpt",
    constants={
        "decoder.input.kind": "tokens",
        "decoder.positions.kind": "alibi",
        "decoder.activation": "gelu",
        "decoder.bias": False,
        "decoder.embed_dropout": 0.0,
    },
    fields=(
        same("vocab_size", "decoder.input.vocab_size", default=50_368),
        *_width("d_model", 2048),
        same("n_layers", "decoder.n_layers", default=24),
        same("n_heads", "decoder.n_heads", default=16),
        same("layer_norm_epsilon", "decoder.norm_eps", default=1e-5),
        same("initializer_range", "init.std", default=0.02),
        _of_attention("attn_pdrop", "decoder.attn_dropout", "decoder.dropout"),
        _of_attention("softmax_scale", "decoder.attn_scale"),
        Only("expansion_ratio", 4),
        Only("no_bias", True),
        Only("logit_scale", None),
        Only("embedding_fraction", 1.0),
        Only("norm_type", "low_precision_layernorm"),
        Alias("hidden_size", of="d_model"),
        Alias("num_hidden_layers", of="n_layers"),
        Alias("num_attention_heads", of="n_heads"),
        ignored("max_seq_len", "learned_pos_emb", "resid_pdrop", "emb_pdrop", "init_device", "init_config", "verbose"),
    ),
    rules=mpt_rules,
    # Published checkpoints name the class of their authors.
    heads=(language("MptForCausalLM", "transformer.", also=("MPTForCausalLM",)), *others("Mpt", "transformer.")),
)
