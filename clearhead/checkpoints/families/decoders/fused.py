"""Decoders with queries, keys and values in one matrix: GPT-NeoX, BLOOM, MPT and Falcon."""

from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.angles import modern, rotary
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.shared import (
    bias,
    decoder_heads,
    four_times,
    head_width,
    qkv_by_head,
    sizes,
)
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import Field, Only, Values, computed, ignored, only, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, modules, sides, split
from clearhead.config import ModelConfig
from clearhead.errors import UserError

# --- GPT-NeoX (Black et al. 2022) ----------------------------------------------------------------------------------


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
    )


def _gpt_neox_modern(document: dict[str, Any]) -> dict[str, Any]:
    """Renames older fields. Beside rope_parameters, the library reads only the names that are this family's own."""
    older = {"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"}
    return modern({older.get(name, name): value for name, value in document.items() if name not in older.values()})


def gpt_neox_rules(config: ModelConfig) -> Sequence[Rule]:
    """One matrix holds each head's queries, keys and values in turn."""
    names = {
        "embed_in": "embed.tokens",
        "final_layer_norm": "final_norm",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "attention.dense": "attn.out",
        "mlp.dense_h_to_4h": "ffn.up",
        "mlp.dense_4h_to_h": "ffn.down",
    }
    return (
        *modules("decoder", "layers.{i}", names),
        qkv_by_head("layers.{i}.attention.query_key_value", config),
        ignore("layers.{i}.attention.bias", "layers.{i}.attention.masked_bias"),
        ignore("layers.{i}.attention.rotary_emb.inv_freq", "rotary_emb.inv_freq"),
    )


GPT_NEOX = Family(
    model_type="gpt_neox",
    constants={},
    fields=(
        *sizes(
            "decoder",
            vocab_size=50_432,
            hidden_size=6144,
            num_hidden_layers=44,
            num_attention_heads=64,
            intermediate_size=24_576,
            hidden_act="gelu",
            layer_norm_eps=1e-5,
            initializer_range=0.02,
            hidden_dropout=0.0,
            attention_dropout=0.0,
        ),
        bias("attention_bias", "qkv", "out", default=True),
        parallel("two_norms", default=True),
        *rotary(max_length=2048, fraction=0.25),
        head_width(),
    ),
    rules=gpt_neox_rules,
    heads=decoder_heads(
        "GPTNeoX",
        "gpt_neox.",
        tied=False,
        names=("lm_head", "embed_out"),
        dropout=same("classifier_dropout", "head.dropout", default=0.1),
    ),
    modernize=_gpt_neox_modern,
)


# --- BLOOM (Le Scao et al. 2022) and MPT (MosaicML 2023) -----------------------------------------------------------


def _inner_width(theirs: str, default: int) -> Field:
    """The width of the feed-forward layer, four times that of the model."""
    return computed(
        theirs,
        "decoder.d_ff",
        read=lambda width, _: 4 * width,
        write=lambda _, ours: ours["decoder"]["d_model"],
        default=default,
    )


def _bloom_modern(document: dict[str, Any]) -> dict[str, Any]:
    older = {"n_embed": "hidden_size", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}
    return {older.get(name, name): value for name, value in document.items() if value is not None or name not in older}


def _bloom_names(*norms: str) -> dict[str, str]:
    """The names of BLOOM and Falcon, with those of the norms before attention and the feed-forward layer."""
    return {
        "word_embeddings": "embed.tokens",
        "ln_f": "final_norm",
        "self_attention.dense": "attn.out",
        "mlp.dense_h_to_4h": "ffn.up",
        "mlp.dense_4h_to_h": "ffn.down",
        **dict(zip(norms, ("attn_norm", "ffn_norm"), strict=False)),
    }


def bloom_rules(config: ModelConfig) -> Sequence[Rule]:
    """One matrix holds each head's queries, keys and values in turn."""
    norms = _bloom_names("input_layernorm", "post_attention_layernorm")
    return (
        *modules("decoder", "h.{i}", {"word_embeddings_layernorm": "embed.norm", **norms}),
        qkv_by_head("h.{i}.self_attention.query_key_value", config),
    )


BLOOM = Family(
    model_type="bloom",
    constants={
        "decoder.input.norm": True,
        "decoder.positions.kind": "alibi",
        "decoder.activation": "gelu_tanh",
        "decoder.embed_dropout": 0.0,
    },
    fields=(
        *sizes(
            "decoder",
            vocab_size=250_880,
            hidden_size=64,
            n_layer=2,
            n_head=8,
            layer_norm_epsilon=1e-5,
            initializer_range=0.02,
            hidden_dropout=0.0,
            attention_dropout=0.0,
        ),
        _inner_width("hidden_size", 64),
        # In parts, the product of the output matrix loses its bias there.
        *only(apply_residual_connection_post_layernorm=False, slow_but_exact=False),
        ignored(
            "pretraining_tp", "seq_length", "offset_alibi", "skip_bias_add*", "*_fusion", "attention_softmax_in_fp32"
        ),
    ),
    rules=bloom_rules,
    heads=decoder_heads("Bloom", "transformer."),
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


def _of_attention(name: str, *ours: str) -> Field:
    """A field of attn_config. It raises UserError for a mechanism that is not here."""

    def read(said: Values | None, _: Values) -> Any:
        values = {**ATTENTION, **(said or {})}
        for other, default in ATTENTION.items():
            if other not in READ and values[other] not in (default, None):
                raise UserError(
                    f"expected {other}={default!r}, the only value that is supported, got {short(values[other])}"
                )
        return values[name]

    def write(_: Any, ours: Values) -> dict[str, Any]:
        stack = ours["decoder"]
        # There the dropout is a whole number.
        return ATTENTION | {"softmax_scale": stack["attn_scale"], "attn_pdrop": int(stack["attn_dropout"])}

    return computed("attn_config", *ours, read=read, write=write, default=None)


def mpt_rules(_: ModelConfig) -> Sequence[Rule]:
    """Queries, keys and values one below the other; no bias anywhere."""
    names = {
        "wte": "embed.tokens",
        "norm_f": "final_norm",
        "norm_1": "attn_norm",
        "attn.out_proj": "attn.out",
        "norm_2": "ffn_norm",
        "ffn.up_proj": "ffn.up",
        "ffn.down_proj": "ffn.down",
    }
    return *modules("decoder", "blocks.{i}", names), split("blocks.{i}.attn.Wqkv.{p}", sides("decoder"))


MPT = Family(
    model_type="mpt",
    constants={
        "decoder.positions.kind": "alibi",
        "decoder.activation": "gelu",
        "decoder.bias": False,
        "decoder.embed_dropout": 0.0,
    },
    fields=(
        *sizes(
            "decoder",
            vocab_size=50_368,
            d_model=2048,
            n_layers=24,
            n_heads=16,
            layer_norm_epsilon=1e-5,
            initializer_range=0.02,
        ),
        _inner_width("d_model", 2048),
        _of_attention("attn_pdrop", "decoder.attn_dropout", "decoder.dropout"),
        _of_attention("softmax_scale", "decoder.attn_scale"),
        *only(expansion_ratio=4, no_bias=True, logit_scale=None, embedding_fraction=1.0),
        Only("norm_type", "low_precision_layernorm"),
        ignored("max_seq_len", "learned_pos_emb", "resid_pdrop", "emb_pdrop", "init_device", "init_config", "verbose"),
    ),
    rules=mpt_rules,
    # Published checkpoints name the class of their authors.
    heads=decoder_heads("Mpt", "transformer.", also=("MPTForCausalLM",)),
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


def _falcon_field(name: str, *ours: str, **more: Any) -> Field:
    """One of the five fields that together say how the blocks are built."""

    def write(_: Any, ours: Values) -> Any:
        stack = ours["decoder"]
        kv, parallel = stack["n_kv_heads"] or stack["n_heads"], stack["parallel"]
        new = parallel == "two_norms" or kv not in (1, stack["n_heads"])
        return {
            "new_decoder_architecture": new,
            "multi_query": kv == 1 and not new,
            "parallel_attn": parallel is not None,
            "num_kv_heads": kv if new else stack["n_heads"],
            "num_ln_in_parallel_attn": (2 if parallel == "two_norms" else 1) if new else None,
        }[name]

    return computed(name, *ours, write=write, **more)


def _falcon_modern(document: dict[str, Any]) -> dict[str, Any]:
    width = document.pop("n_embed", None)
    return modern(document if width is None else document | {"hidden_size": width})


def falcon_rules(config: ModelConfig) -> Sequence[Rule]:
    """One matrix holds, for each key head, its queries, its keys and its values in turn."""
    norms = {
        "two_norms": ("ln_attn", "ln_mlp"),
        "one_norm": ("input_layernorm",),
        None: ("input_layernorm", "post_attention_layernorm"),
    }[config.output.parallel]
    return (
        *modules("decoder", "h.{i}", _bloom_names(*norms)),
        qkv_by_head("h.{i}.self_attention.query_key_value", config),
        ignore("rotary_emb.inv_freq", "h.{i}.self_attention.rotary_emb.inv_freq"),
    )


FALCON = Family(
    model_type="falcon",
    constants={"decoder.norm_bias": True, "decoder.embed_dropout": 0.0},
    fields=(
        *sizes(
            "decoder",
            vocab_size=65_024,
            hidden_size=4544,
            num_hidden_layers=32,
            num_attention_heads=71,
            activation="gelu",
            layer_norm_epsilon=1e-5,
            initializer_range=0.02,
            hidden_dropout=0.0,
            attention_dropout=0.0,
        ),
        _falcon_field("new_decoder_architecture", default=False),
        _falcon_field("multi_query", default=True),
        _falcon_field("parallel_attn", default=True),
        _falcon_field("num_kv_heads", "decoder.n_kv_heads", read=_kv_heads, default=None),
        _falcon_field("num_ln_in_parallel_attn", "decoder.parallel", read=_parallel, default=None),
        four_times("ffn_hidden_size", "hidden_size"),
        bias("bias", "qkv", "out", "ffn"),
        # There the slopes times positions are rounded to 8 bits, so that far tokens share a distance.
        Only("alibi", False),
        *rotary(max_length=2048),
        ignored("head_dim", "rotary"),
    ),
    rules=falcon_rules,
    heads=decoder_heads("Falcon", "transformer."),
    modernize=_falcon_modern,
)
