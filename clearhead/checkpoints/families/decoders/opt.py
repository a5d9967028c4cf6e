"""Decoders with BART's names: OPT and XGLM."""

from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families.encoder_decoders.bart import LENGTH, mbart_waves
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.shared import bias, decoder_heads, sizes
from clearhead.checkpoints.weights.fields import Field, Only, Values, computed, equal, ignored, same
from clearhead.checkpoints.weights.mapping import ignore, modules
from clearhead.errors import UserError

BLOCK = {
    "self_attn.q_proj": "attn.q",
    "self_attn.k_proj": "attn.k",
    "self_attn.v_proj": "attn.v",
    "self_attn.out_proj": "attn.out",
    "self_attn_layer_norm": "attn_norm",
    "fc1": "ffn.up",
    "fc2": "ffn.down",
    "final_layer_norm": "ffn_norm",
}

# --- OPT (Zhang et al. 2022) ---------------------------------------------------------------------------------------


def _place(place: str, _: Values) -> bool:
    if place not in ("pre", "post"):
        raise ValueError(place)
    return place == "pre"


def _if_narrow(ours: str, narrow: Any, otherwise: Any) -> Field:
    """A setting of ours that says whether the token table is narrower than the network, and maybe its width."""

    def read(width: int | None, values: Values) -> Any:
        is_narrow = width not in (None, values["hidden_size"])
        return (width if narrow is int else narrow) if is_narrow else otherwise

    def write(_: Any, config: Values) -> int:
        stack = config["decoder"]
        return stack["input"]["width"] or stack["d_model"]

    return computed("word_embed_proj_dim", ours, read=read, write=write, default=None)


# Of opt-350m: a dense layer after the token table, and one before the output matrix.
WIDTHS = (
    _if_narrow("decoder.input.width", int, None),
    _if_narrow("decoder.input.tokens_alone", True, False),
    _if_narrow("head.transform", True, False),
    _if_narrow("head.transform_alone", True, False),
    _if_narrow("head.transform_bias", False, True),
)
SAME_WIDTH = equal("word_embed_proj_dim", "hidden_size", "decoder.d_model")
OPT_NAMES = {
    "decoder.embed_tokens": "embed.tokens",
    "decoder.embed_positions": "positions.table",
    "decoder.final_layer_norm": "final_norm",
    "decoder.project_in": "embed.widen",
}

_WORDS, *_OTHERS = decoder_heads("OPT", "model.", "bare class span")
OPT = Family(
    model_type="opt",
    constants={
        "decoder.positions.kind": "learned",
        "decoder.positions.offset": 2,
        "decoder.embed_dropout": 0.0,
    },
    fields=(
        *sizes(
            "decoder",
            vocab_size=50_272,
            hidden_size=768,
            num_hidden_layers=12,
            ffn_dim=3072,
            num_attention_heads=12,
            max_position_embeddings=2048,
            activation_function="relu",
            init_std=0.02,
            dropout=0.1,
            attention_dropout=0.0,
        ),
        computed(
            "do_layer_norm_before",
            "decoder.norm_place",
            read=lambda before, _: "pre" if before else "post",
            write=_place,
            default=True,
        ),
        computed(
            "_remove_final_layer_norm",
            "decoder.final_norm",
            read=lambda removed, values: values["do_layer_norm_before"] and not removed,
            write=lambda final, ours: ours["decoder"]["norm_place"] == "pre" and final is False,
            default=False,
        ),
        bias("enable_bias", "qkv", "out", "ffn", default=True),
        Only("layer_norm_elementwise_affine", True),
        # It leaves out whole layers in training.
        ignored("layerdrop", "activation_dropout"),
    ),
    rules=lambda _: modules("decoder", "decoder.layers.{i}", OPT_NAMES | BLOCK),
    heads=(
        replace(_WORDS, fields=(*_WORDS.fields, *WIDTHS), names={"model.decoder.project_out": "dense"}),
        *(replace(head, fields=(*head.fields, SAME_WIDTH)) for head in _OTHERS),
    ),
)


# --- XGLM (Lin et al. 2021) ----------------------------------------------------------------------------------------

FIRST = 2
"""The row of the first position."""


def _padding(row: int | None, _: Values) -> None:
    if row is not None and row >= FIRST:
        raise UserError(f"expected less than {FIRST}, because it names a row of the positions, got {row}")


XGLM = Family(
    model_type="xglm",
    constants={
        "decoder.positions.kind": "sinusoidal",
        "decoder.positions.layout": "concatenated",
        "decoder.positions.offset": FIRST,
        "decoder.norm_eps": 1e-5,
    },
    fields=(
        *sizes(
            "decoder",
            vocab_size=256_008,
            d_model=1024,
            num_layers=24,
            attention_heads=16,
            ffn_dim=4096,
            activation_function="gelu",
            dropout=0.1,
            attention_dropout=0.1,
            activation_dropout=0.0,
            init_std=0.02,
        ),
        *mbart_waves("decoder", default=1024),
        same("scale_embedding", "decoder.input.scale", default=True),
        computed("pad_token_id", read=_padding, write=lambda *_: 1, default=1, null=True),
        # The waves have no end.
        computed("max_position_embeddings", write=lambda *_: LENGTH, default=2048),
        # In training, the reference library skips a share of the layers. Here all of them are trained.
        ignored("layerdrop"),
    ),
    rules=lambda _: (
        *modules("decoder", "layers.{i}", {"embed_tokens": "embed.tokens", "layer_norm": "final_norm", **BLOCK}),
        ignore("embed_positions.weights"),
    ),
    heads=decoder_heads("XGLM", "model.", "bare"),
)


# --- BioGPT (Luo et al. 2022) --------------------------------------------------------------------------------------

BIOGPT_NAMES = {"embed_tokens": "embed.tokens", "embed_positions": "positions.table", "layer_norm": "final_norm"}
BIOGPT = Family(
    model_type="biogpt",
    constants={"decoder.positions.kind": "learned", "decoder.positions.offset": 2, "decoder.norm_eps": 1e-5},
    fields=(
        *sizes(
            "decoder",
            vocab_size=42_384,
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
            hidden_act="gelu",
            max_position_embeddings=1024,
            initializer_range=0.02,
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
            activation_dropout=0.0,
        ),
        same("scale_embedding", "decoder.input.scale", default=True),
        # Its norms have the epsilon above. It leaves out whole layers in training.
        ignored("layer_norm_eps", "layerdrop"),
    ),
    rules=lambda _: modules("decoder", "layers.{i}", BIOGPT_NAMES | BLOCK),
    heads=decoder_heads("BioGpt", "biogpt.", "bare class tags", names=("output_projection",)),
)
