"""Decoders with attention in some layers and a convolution in the others: LFM2 and its mixture."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from clearhead.checkpoints.families.angles import modern, rotary
from clearhead.checkpoints.families.decoders.llama import llama_like, renamed
from clearhead.checkpoints.families.mixtures.mixtures import (
    WS,
    choice,
    dense_first,
    expert_width,
    mixture_rules,
    normalised,
)
from clearhead.checkpoints.families.shared import FULL, MOST_LAYERS
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import Alias, Field, Values, computed, factor, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, rename, split, squeezed
from clearhead.config import ModelConfig
from clearhead.errors import UserError


def mixed_layers(name: str, *, every: str = "") -> Field:
    """The layers that `layer_types` gives the mixer; `name` is their name for such a layer.

    Without layer_types, all have attention, or with `every` only every n-th, where this field says n.
    """

    def read(kinds: list[str] | None, values: Values) -> list[int] | None:
        n = min(values["num_hidden_layers"], MOST_LAYERS)
        step = values[every] if every else 1
        kinds = [name if (i + 1) % step else FULL for i in range(n)] if kinds is None else kinds
        if len(kinds) != n or not {*kinds} <= {FULL, name}:
            raise UserError(f"expected {FULL} or {name} for each of num_hidden_layers={n}, got {short(kinds)}")
        own = [i for i, kind in enumerate(kinds) if kind == name]
        return None if len(own) == n else own

    def write(own: Sequence[int] | None, ours: Values) -> list[str]:
        n = ours["decoder"]["n_layers"]
        return [name if own is None or i in own else FULL for i in range(n)]

    return computed("layer_types", "decoder.mixer.layers", read=read, write=write, default=None)


# --- Liquid AI 2025 ----------------------------------------------------------------------------------------------

CONV = "conv"


def _plain(document: dict[str, Any]) -> dict[str, Any]:
    """The width of the feed-forward layer as it is, and a name for each layer."""
    document = modern(document)
    attends, n = document.pop("full_attn_idxs", None), document.get("num_hidden_layers", 32)
    if document.get("layer_types") is None and isinstance(attends, list) and type(n) is int:
        document["layer_types"] = [FULL if i in attends else CONV for i in range(min(n, MOST_LAYERS))]
    width = document.pop("block_ff_dim", document.get("intermediate_size", 12_288))
    factor, step = document.pop("block_ffn_dim_multiplier", 1.0), document.pop("block_multiple_of", 256)
    if (adjusts := document.pop("block_auto_adjust_ff_dim", True)) and type(width) is int:
        width = int(2 * width / 3)
        width = width if None in (factor, step) else -(-int(factor * width) // step) * step
    return {**document, "intermediate_size": width, "block_auto_adjust_ff_dim": adjusts and False}


LFM2_NAMES = {
    "embedding_norm": "final_norm",
    "operator_norm": "attn_norm",
    "self_attn.out_proj": "attn.out",
    "self_attn.q_layernorm": "attn.q_norm",
    "self_attn.k_layernorm": "attn.k_norm",
    "conv.out_proj": "mix.out",
    "ffn_norm": "ffn_norm",
    "feed_forward.w1": "ffn.gate",
    "feed_forward.w3": "ffn.up",
    "feed_forward.w2": "ffn.down",
}


def _lfm2_rules(_: ModelConfig) -> Sequence[Rule]:
    ours = "decoder.blocks.{i}.mix"
    return (
        *renamed(LFM2_NAMES),
        split("layers.{i}.conv.in_proj.{p}", [f"{ours}.{name}.{{p}}" for name in ("in_gate", "out_gate", "value")]),
        squeezed(rename("layers.{i}.conv.conv.weight", f"{ours}.conv.weight")),
        rename("layers.{i}.conv.conv.bias", f"{ours}.conv.bias"),
    )


CONVOLUTION = (
    mixed_layers(CONV),
    same("conv_L_cache", "decoder.mixer.width", default=3),
    same("conv_bias", "decoder.mixer.bias", default=False),
    Alias("tie_embedding", of="tie_word_embeddings"),
)
LFM2_CONSTANTS = {
    "decoder.mixer.kind": "short_convolution",
    "decoder.qk_norm": True,
    "decoder.activation": "silu",
}
lfm2_like = partial(
    llama_like,
    n_classes=2,
    tied=True,
    leave_out=("hidden_act", "attention_dropout"),
    vocab_size=65_536,
    num_key_value_heads=8,
    norm_eps=1e-5,
    angles=rotary(max_length=128_000, theta=1_000_000.0),
)
LFM2 = lfm2_like(
    "lfm2",
    "Lfm2",
    *CONVOLUTION,
    computed("block_auto_adjust_ff_dim", write=lambda *_: False, default=False),
    ignored("block_ffn_dim_multiplier", "block_multiple_of", "full_attn_idxs", "block_ff_dim"),  # `_plain` reads them.
    constants=LFM2_CONSTANTS,
    rules=_lfm2_rules,
    modernize=_plain,
    hidden_size=2560,
    intermediate_size=12_288,
)

LFM2_MOE = lfm2_like(
    "lfm2_moe",
    "Lfm2Moe",
    *CONVOLUTION,
    *choice(32, 4),
    dense_first("num_dense_layers", 2),
    expert_width(1792),
    normalised(True),
    factor("routed_scaling_factor", "decoder.experts.scale"),
    same("use_expert_bias", "decoder.experts.correction", default=True),
    ignored("output_router_logits"),
    constants=LFM2_CONSTANTS | {"decoder.experts.scores": "sigmoid"},
    rules=mixture_rules(WS, at="layers.{i}.feed_forward", correction="expert_bias", rest=_lfm2_rules),
    hidden_size=2048,
    intermediate_size=7168,
)
