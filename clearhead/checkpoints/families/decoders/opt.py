"""Decoders with BART's names: OPT and XGLM."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families.encoder_decoders.bart import LENGTH, mbart_waves
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.shared import ACTIVATIONS, decoder_heads, decoder_language
from clearhead.checkpoints.weights.fields import (
    Alias,
    Field,
    Only,
    Values,
    computed,
    ignored,
    implied,
    inherited,
    named,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, ignore, rename, renames
from clearhead.config import ModelConfig
from clearhead.errors import UserError

# --- OPT (Zhang et al. 2022) ---------------------------------------------------------------------------------------


def _final_norm(removed: bool, values: Values) -> bool:
    return values["do_layer_norm_before"] and not removed


def _place(place: str, _: Values) -> bool:
    if place not in ("pre", "post"):
        raise ValueError(place)
    return place == "pre"


OPT_FIELDS = (
    same("vocab_size", "decoder.input.vocab_size", default=50_272),
    same("hidden_size", "decoder.d_model", default=768),
    same("num_hidden_layers", "decoder.n_layers", default=12),
    same("ffn_dim", "decoder.d_ff", default=3072),
    same("num_attention_heads", "decoder.n_heads", default=12),
    same("max_position_embeddings", "decoder.positions.max_length", default=2048),
    computed(
        "do_layer_norm_before",
        "decoder.norm_place",
        read=lambda before, _: "pre" if before else "post",
        write=_place,
        default=True,
        like=True,
    ),
    computed(
        "_remove_final_layer_norm",
        "decoder.final_norm",
        read=_final_norm,
        write=lambda final, ours: ours["decoder"]["norm_place"] == "pre" and final is False,
        default=False,
        like=False,
    ),
    named("activation_function", "decoder.activation", names=ACTIVATIONS, default="relu"),
    same("init_std", "init.std", default=0.02),
    same("dropout", "decoder.dropout", default=0.1),
    same("attention_dropout", "decoder.attn_dropout", default=0.0),
    inherited("enable_bias", "decoder.qkv_bias", "decoder.out_bias", "decoder.ffn_bias", of="bias", default=True),
    Only("layer_norm_elementwise_affine", True),
    # It leaves out whole layers in training.
    ignored("layerdrop", "activation_dropout"),
)
SAME_WIDTH = implied(
    "word_embed_proj_dim",
    lambda theirs: theirs["hidden_size"],
    write=lambda ours: ours["decoder"]["d_model"],
    what="which is hidden_size",
)


def _narrow(width: int | None, values: Values) -> bool:
    return width not in (None, values["hidden_size"])


def _width(_: Any, ours: Values) -> int:
    stack = ours["decoder"]
    return stack["input"]["width"] or stack["d_model"]


def _if_narrow(ours: str, yes: Any, no: Any) -> Field:
    """A setting of ours that says whether the token table is narrower than the network."""
    return computed(
        "word_embed_proj_dim",
        ours,
        read=lambda width, values: yes if _narrow(width, values) else no,
        write=_width,
        default=None,
    )


# Of opt-350m: a dense layer after the token table, and one before the output matrix.
WIDTHS = (
    computed(
        "word_embed_proj_dim",
        "decoder.input.width",
        read=lambda width, values: width if _narrow(width, values) else None,
        write=_width,
        default=None,
    ),
    _if_narrow("decoder.input.tokens_alone", True, False),
    _if_narrow("head.transform", True, False),
    _if_narrow("head.transform_alone", True, False),
    _if_narrow("head.transform_bias", False, True),
)
OPT_CONSTANTS: dict[str, Any] = {
    "decoder.input.kind": "tokens",
    "decoder.positions.kind": "learned",
    "decoder.positions.offset": 2,
    "decoder.embed_dropout": 0.0,
}


def opt_rules(_: ModelConfig) -> Sequence[Rule]:
    """BART's names."""
    ours = "decoder.blocks.{i}"
    attention = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "out"}
    return (
        rename("decoder.embed_tokens.weight", "decoder.embed.tokens.weight"),
        rename("decoder.embed_positions.weight", "decoder.positions.table.weight"),
        *renames("decoder.layers.{i}.self_attn", f"{ours}.attn", attention),
        *renames(
            "decoder.layers.{i}",
            ours,
            {
                "self_attn_layer_norm": "attn_norm",
                "fc1": "ffn.up",
                "fc2": "ffn.down",
                "final_layer_norm": "ffn_norm",
            },
        ),
        rename("decoder.final_layer_norm.{p}", "decoder.final_norm.{p}"),
        rename("decoder.project_in.weight", "decoder.embed.widen.weight"),
        rename("decoder.project_out.weight", "head.dense.weight"),
    )


OPT = Family(
    model_type="opt",
    constants=OPT_CONSTANTS,
    fields=OPT_FIELDS,
    rules=opt_rules,
    heads=(
        decoder_language("OPTForCausalLM", "model.", *WIDTHS),
        *(
            replace(head, fields=(*head.fields, SAME_WIDTH))
            for head in decoder_heads("OPT", "model.", "bare class span")
        ),
    ),
)


# --- XGLM (Lin et al. 2021) ----------------------------------------------------------------------------------------

FIRST = 2
"""The row of the first position."""


def _padding(row: int | None, _: Values) -> None:
    if row is not None and row >= FIRST:
        raise UserError(f"expected less than {FIRST}, because it names a row of the positions, got {row}")


XGLM_FIELDS = (
    same("vocab_size", "decoder.input.vocab_size", default=256_008),
    same("d_model", "decoder.d_model", default=1024),
    *mbart_waves("decoder", default=1024),
    same("num_layers", "decoder.n_layers", default=24),
    same("attention_heads", "decoder.n_heads", default=16),
    same("ffn_dim", "decoder.d_ff", default=4096),
    named("activation_function", "decoder.activation", names=ACTIVATIONS, default="gelu"),
    same("scale_embedding", "decoder.input.scale", default=True),
    same("dropout", "decoder.dropout", default=0.1),
    same("attention_dropout", "decoder.attn_dropout", default=0.1),
    same("activation_dropout", "decoder.ffn_dropout", default=0.0),
    same("init_std", "init.std", default=0.02),
    computed("pad_token_id", read=_padding, write=lambda *_: 1, default=1),
    # The waves have no end.
    computed("max_position_embeddings", write=lambda *_: LENGTH, default=2048, like=LENGTH),
    Alias("hidden_size", of="d_model"),
    Alias("num_attention_heads", of="attention_heads"),
    Alias("num_hidden_layers", of="num_layers"),
    # In training, the reference library skips a share of the layers. Here all of them are trained.
    ignored("layerdrop"),
)
XGLM_CONSTANTS: dict[str, Any] = {
    "decoder.input.kind": "tokens",
    "decoder.positions.kind": "sinusoidal",
    "decoder.positions.layout": "concatenated",
    "decoder.positions.offset": FIRST,
    "decoder.norm_eps": 1e-5,
}


def xglm_rules(_: ModelConfig) -> Sequence[Rule]:
    """BART's names."""
    theirs, ours = "layers.{i}", "decoder.blocks.{i}"
    attention = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "out"}
    rest = {"self_attn_layer_norm": "attn_norm", "fc1": "ffn.up", "fc2": "ffn.down", "final_layer_norm": "ffn_norm"}
    return (
        rename("embed_tokens.weight", "decoder.embed.tokens.weight"),
        *renames(f"{theirs}.self_attn", f"{ours}.attn", attention),
        *renames(theirs, ours, rest),
        rename("layer_norm.{p}", "decoder.final_norm.{p}"),
        ignore("embed_positions.weights"),
    )


XGLM = Family(
    model_type="xglm",
    constants=XGLM_CONSTANTS,
    fields=XGLM_FIELDS,
    rules=xglm_rules,
    heads=(decoder_language("XGLMForCausalLM", "model."), *decoder_heads("XGLM", "model.", "bare")),
)
