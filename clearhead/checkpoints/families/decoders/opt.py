"""The decoder of Zhang et al. 2022: ReLU, learned positions with two rows before the first, pre-norm or post-norm."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families.decoders.decoder_heads import language, others
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.shared import ACTIVATIONS
from clearhead.checkpoints.weights.fields import Field, Only, Values, computed, ignored, implied, inherited, named, same
from clearhead.checkpoints.weights.mapping import Rule, rename
from clearhead.config import ModelConfig


def _final_norm(removed: bool, values: Values) -> bool:
    return values["do_layer_norm_before"] and not removed


def _place(place: str, _: Values) -> bool:
    if place not in ("pre", "post"):
        raise ValueError(place)
    return place == "pre"


FIELDS = (
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
CONSTANTS: dict[str, Any] = {
    "decoder.input.kind": "tokens",
    "decoder.positions.kind": "learned",
    "decoder.positions.offset": 2,
    "decoder.embed_dropout": 0.0,
}


def rules(_: ModelConfig) -> Sequence[Rule]:
    """BART's names."""
    ours = "decoder.blocks.{i}"
    attention = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "out"}
    return (
        rename("decoder.embed_tokens.weight", "decoder.embed.tokens.weight"),
        rename("decoder.embed_positions.weight", "decoder.positions.table.weight"),
        *(rename(f"decoder.layers.{{i}}.self_attn.{a}.{{p}}", f"{ours}.attn.{b}.{{p}}") for a, b in attention.items()),
        rename("decoder.layers.{i}.self_attn_layer_norm.{p}", f"{ours}.attn_norm.{{p}}"),
        rename("decoder.layers.{i}.fc1.{p}", f"{ours}.ffn.up.{{p}}"),
        rename("decoder.layers.{i}.fc2.{p}", f"{ours}.ffn.down.{{p}}"),
        rename("decoder.layers.{i}.final_layer_norm.{p}", f"{ours}.ffn_norm.{{p}}"),
        rename("decoder.final_layer_norm.{p}", "decoder.final_norm.{p}"),
        rename("decoder.project_in.weight", "decoder.embed.widen.weight"),
        rename("decoder.project_out.weight", "head.dense.weight"),
    )


FAMILY = Family(
    model_type="opt",
    constants=CONSTANTS,
    fields=FIELDS,
    rules=rules,
    heads=(
        language("OPTForCausalLM", "model.", *WIDTHS),
        *(replace(head, fields=(*head.fields, SAME_WIDTH)) for head in others("OPT", "model.", "bare class span")),
    ),
)
