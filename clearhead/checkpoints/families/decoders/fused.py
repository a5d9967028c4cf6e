"""Decoders with queries, keys and values in one matrix: GPT-NeoX, BLOOM, MPT and Falcon."""

from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.angles import modern, rotary
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.shared import ACTIVATIONS, decoder_heads, decoder_language, four_times, head_width
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import Alias, Field, Only, Values, computed, ignored, inherited, named, same
from clearhead.checkpoints.weights.mapping import Rule, fused, ignore, rename, renames, split
from clearhead.config import ModelConfig
from clearhead.errors import UserError

# --- GPT-NeoX (Black et al. 2022) ----------------------------------------------------------------------------------

SIDES = "qkv"


def parallel(kind: str, *, default: bool) -> Field:
    """use_parallel_residual: the branches side by side, with as many norms as `kind` says, or one after the other."""

    def write(said: str | None, _: Any) -> bool:
        if said not in (kind, None):
            raise ValueError(said)
        return said is not None

    return computed(
        "use_parallel_residual",
        "decoder.parallel",
        read=lambda said, _: kind if said else None,
        write=write,
        default=default,
        like=default,
    )


def _gpt_neox_modern(document: dict[str, Any]) -> dict[str, Any]:
    older = {"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"}
    return modern({older.get(name, name): value for name, value in document.items()})


GPT_NEOX_FIELDS = (
    same("vocab_size", "decoder.input.vocab_size", default=50_432),
    same("hidden_size", "decoder.d_model", default=6144),
    same("num_hidden_layers", "decoder.n_layers", default=44),
    same("num_attention_heads", "decoder.n_heads", default=64),
    same("intermediate_size", "decoder.d_ff", default=24_576),
    named("hidden_act", "decoder.activation", names=ACTIVATIONS, default="gelu"),
    same("layer_norm_eps", "decoder.norm_eps", default=1e-5),
    same("initializer_range", "init.std", default=0.02),
    same("hidden_dropout", "decoder.dropout", default=0.0),
    same("attention_dropout", "decoder.attn_dropout", default=0.0),
    inherited("attention_bias", "decoder.qkv_bias", "decoder.out_bias", of="bias", default=True),
    parallel("two_norms", default=True),
    *rotary(max_length=2048, fraction=0.25),
    head_width(),
)


def gpt_neox_rules(config: ModelConfig) -> Sequence[Rule]:
    """One matrix holds each head's queries, keys and values in turn."""
    ours, stack = "decoder.blocks.{i}", config.output
    return (
        rename("embed_in.weight", "decoder.embed.tokens.weight"),
        rename("layers.{i}.input_layernorm.{p}", f"{ours}.attn_norm.{{p}}"),
        rename("layers.{i}.post_attention_layernorm.{p}", f"{ours}.ffn_norm.{{p}}"),
        fused(
            "layers.{i}.attention.query_key_value.{p}",
            [f"{ours}.attn.{side}.{{p}}" for side in SIDES],
            rows=[stack.head_width] * 3,
            groups=stack.n_heads,
        ),
        *renames(
            "layers.{i}",
            ours,
            {
                "attention.dense": "attn.out",
                "mlp.dense_h_to_4h": "ffn.up",
                "mlp.dense_4h_to_h": "ffn.down",
            },
        ),
        rename("final_layer_norm.{p}", "decoder.final_norm.{p}"),
        ignore("layers.{i}.attention.bias", "layers.{i}.attention.masked_bias"),
        ignore("layers.{i}.attention.rotary_emb.inv_freq", "rotary_emb.inv_freq"),
    )


GPT_NEOX = Family(
    model_type="gpt_neox",
    constants={"decoder.input.kind": "tokens"},
    fields=GPT_NEOX_FIELDS,
    rules=gpt_neox_rules,
    heads=(
        decoder_language("GPTNeoXForCausalLM", "gpt_neox.", tied=False, older=("embed_out",)),
        *decoder_heads("GPTNeoX", "gpt_neox.", dropout=same("classifier_dropout", "head.dropout", default=0.1)),
    ),
    modernize=_gpt_neox_modern,
)


# --- BLOOM (Le Scao et al. 2022) and MPT (MosaicML 2023) -----------------------------------------------------------


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


def _bloom_modern(document: dict[str, Any]) -> dict[str, Any]:
    older = {"n_embed": "hidden_size", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}
    return {older.get(name, name): value for name, value in document.items() if value is not None or name not in older}


def bloom_rules(config: ModelConfig) -> Sequence[Rule]:
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
        *renames(
            "h.{i}",
            ours,
            {
                "self_attention.dense": "attn.out",
                "post_attention_layernorm": "ffn_norm",
                "mlp.dense_h_to_4h": "ffn.up",
                "mlp.dense_4h_to_h": "ffn.down",
            },
        ),
        rename("ln_f.{p}", "decoder.final_norm.{p}"),
    )


BLOOM = Family(
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
    rules=bloom_rules,
    heads=(decoder_language("BloomForCausalLM", "transformer."), *decoder_heads("Bloom", "transformer.")),
    modernize=_bloom_modern,
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


def _bloom_written(_: Any, ours: Values) -> dict[str, Any]:
    stack = ours["decoder"]
    # There the dropout is a whole number.
    return ATTENTION | {"softmax_scale": stack["attn_scale"], "attn_pdrop": int(stack["attn_dropout"])}


def _of_attention(name: str, *ours: str) -> Field:
    """A field of attn_config."""
    return computed("attn_config", *ours, read=lambda said, _: _inner(said)[name], write=_bloom_written, default=None)


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
    heads=(
        decoder_language("MptForCausalLM", "transformer.", also=("MPTForCausalLM",)),
        *decoder_heads("Mpt", "transformer."),
    ),
)


# --- Falcon (Almazrouei et al. 2023) -------------------------------------------------------------------------------


def _kv_heads(said: int | None, values: Values) -> int:
    heads = values["num_attention_heads"]
    if values["new_decoder_architecture"]:
        return heads if said is None else said
    if values["multi_query"]:
        return 1
    if said not in (None, heads):
        raise UserError(f"expected num_attention_heads={heads} without multi_query, got {short(said)}")
    return heads


def _parallel(said: int | None, values: Values) -> str | None:
    """The norms of branches that are side by side; None for one branch after the other."""
    new, side_by_side = values["new_decoder_architecture"], values["parallel_attn"]
    if said not in ((None, 1, 2) if new else (None, 1)) or (new and not side_by_side):
        raise UserError("expected 1, or 2 with new_decoder_architecture and parallel_attn, got another combination")
    if new:
        return "one_norm" if said == 1 else "two_norms"
    return "one_norm" if side_by_side else None


def _falcon_written(ours: Values) -> dict[str, Any]:
    """The five fields of an architecture."""
    stack = ours["decoder"]
    kv, parallel = stack["n_kv_heads"] or stack["n_heads"], stack["parallel"]
    new = parallel == "two_norms" or kv not in (1, stack["n_heads"])
    return {
        "new_decoder_architecture": new,
        "multi_query": kv == 1 and not new,
        "parallel_attn": parallel is not None,
        "num_kv_heads": kv if new else stack["n_heads"],
        "num_ln_in_parallel_attn": (2 if parallel == "two_norms" else 1) if new else None,
    }


def _flag(name: str, default: bool) -> Field:
    return computed(name, write=lambda _, ours: _falcon_written(ours)[name], default=default, like=default)


FALCON_FIELDS = (
    same("vocab_size", "decoder.input.vocab_size", default=65_024),
    same("hidden_size", "decoder.d_model", default=4544),
    same("num_hidden_layers", "decoder.n_layers", default=32),
    same("num_attention_heads", "decoder.n_heads", default=71),
    _flag("new_decoder_architecture", default=False),
    _flag("multi_query", default=True),
    _flag("parallel_attn", default=True),
    computed(
        "num_kv_heads",
        "decoder.n_kv_heads",
        read=_kv_heads,
        write=lambda _, ours: _falcon_written(ours)["num_kv_heads"],
        default=None,
    ),
    computed(
        "num_ln_in_parallel_attn",
        "decoder.parallel",
        read=_parallel,
        write=lambda _, ours: _falcon_written(ours)["num_ln_in_parallel_attn"],
        default=None,
    ),
    four_times("ffn_hidden_size", "hidden_size"),
    named("activation", "decoder.activation", names=ACTIVATIONS, default="gelu"),
    same("layer_norm_epsilon", "decoder.norm_eps", default=1e-5),
    same("initializer_range", "init.std", default=0.02),
    same("hidden_dropout", "decoder.dropout", default=0.0),
    same("attention_dropout", "decoder.attn_dropout", default=0.0),
    inherited("bias", "decoder.qkv_bias", "decoder.out_bias", "decoder.ffn_bias", of="bias", default=False),
    # There the slopes times positions are rounded to 8 bits, so that far tokens share a distance.
    Only("alibi", False),
    *rotary(max_length=2048),
    ignored("head_dim", "rotary"),
)


def _falcon_modern(document: dict[str, Any]) -> dict[str, Any]:
    width = document.pop("n_embed", None)
    return modern(document if width is None else document | {"hidden_size": width})


def falcon_rules(config: ModelConfig) -> Sequence[Rule]:
    """One matrix holds, for each key head, its queries, its keys and its values in turn."""
    ours, stack = "decoder.blocks.{i}", config.output
    k, group = stack.head_width, stack.n_heads // stack.kv_heads
    first, second = ("ln_attn", "ln_mlp") if stack.parallel == "two_norms" else ("input_layernorm", None)
    second = "post_attention_layernorm" if stack.parallel is None else second
    return (
        rename("word_embeddings.weight", "decoder.embed.tokens.weight"),
        rename(f"h.{{i}}.{first}.{{p}}", f"{ours}.attn_norm.{{p}}"),
        *([rename(f"h.{{i}}.{second}.{{p}}", f"{ours}.ffn_norm.{{p}}")] if second else []),
        fused(
            "h.{i}.self_attention.query_key_value.{p}",
            [f"{ours}.attn.{side}.{{p}}" for side in "qkv"],
            rows=[group * k, k, k],
            groups=stack.kv_heads,
        ),
        *renames(
            "h.{i}",
            ours,
            {
                "self_attention.dense": "attn.out",
                "mlp.dense_h_to_4h": "ffn.up",
                "mlp.dense_4h_to_h": "ffn.down",
            },
        ),
        rename("ln_f.{p}", "decoder.final_norm.{p}"),
        ignore("rotary_emb.inv_freq", "h.{i}.self_attention.rotary_emb.inv_freq"),
    )


FALCON = Family(
    model_type="falcon",
    constants={"decoder.input.kind": "tokens", "decoder.norm_bias": True, "decoder.embed_dropout": 0.0},
    fields=FALCON_FIELDS,
    rules=falcon_rules,
    heads=(decoder_language("FalconForCausalLM", "transformer."), *decoder_heads("Falcon", "transformer.")),
    modernize=_falcon_modern,
)
