"""Mixtures that differ from another family's in a norm or in where the experts are: Solar, dots, Granite, HunYuan."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families.angles import (
    layered_angles,
    layered_modernizer,
    modern,
    rotary,
    windowed_layers,
    windows,
)
from clearhead.checkpoints.families.decoders.llama import BIASES, llama_like, renamed
from clearhead.checkpoints.families.decoders.renamed import ERNIE_4_5
from clearhead.checkpoints.families.decoders.two_kinds import cohere_rules
from clearhead.checkpoints.families.decoders.variants import TURNED, hunyuan_like, hunyuan_rules, stretched
from clearhead.checkpoints.families.mixtures.mixtures import (
    CORRECTION,
    GLM4_MOE,
    GRANITE_MOE,
    PROJECTIONS,
    SIGMOID,
    balance,
    choice,
    expert_width,
    further,
    mixture_rules,
    normalised,
    number,
    sparse,
)
from clearhead.checkpoints.families.shared import (
    FULL,
    LOCAL,
    MOST_LAYERS,
    bare,
    bias,
    by_layer_types,
    decoder_heads,
    window_layers,
    with_defaults,
    without,
)
from clearhead.checkpoints.weights.fields import Alias, Values, computed, factor, ignored, implied, only, same
from clearhead.checkpoints.weights.mapping import Rule, fused, rename, reshape
from clearhead.config import ModelConfig

BY_GROUPS = SIGMOID | {"decoder.experts.group_best": 2}

# --- Upstage 2026: experts in every layer -----------------------------------------------------------------------------

SOLAR_OPEN = llama_like(
    "solar_open",
    "SolarOpen",
    bias("attention_bias", "qkv"),
    *choice(128, 8, theirs="n_routed_experts"),
    *without(sparse(), "first_k_dense_replace", "moe_intermediate_size"),
    same("moe_intermediate_size", "decoder.d_ff", "decoder.experts.d_ff", default=1280),
    ignored("intermediate_size"),
    constants=BY_GROUPS,
    rules=GLM4_MOE.rules,
    n_classes=2,
    vocab_size=196_608,
    num_hidden_layers=48,
    num_attention_heads=64,
    num_key_value_heads=8,
    head_dim=128,
    rms_norm_eps=1e-5,
    angles=rotary(max_length=131_072, theta=1_000_000.0),
)

# --- Xiaohongshu 2025 -------------------------------------------------------------------------------------------------


def _kinds(document: dict[str, Any]) -> dict[str, Any]:
    """The layers from max_window_layers on have the window, unless layer_types says otherwise."""
    document = modern(document)
    n, first = document.get("num_hidden_layers", 62), document.get("max_window_layers", 62)
    if document.get("layer_types") is None and type(n) is int and type(first) is int:
        full = n if document.get("sliding_window", 4096) is None else first
        document["layer_types"] = [LOCAL if i >= full else FULL for i in range(min(n, MOST_LAYERS))]
    return document


DOTS_1 = llama_like(
    "dots1",
    "Dots1",
    BIASES[0],
    *windows(every=1),
    *choice(128, 6, theirs="n_routed_experts"),
    *with_defaults(sparse(first=0, shared=2), norm_topk_prob=False),
    ignored("max_window_layers"),
    constants=BY_GROUPS | {"decoder.qk_norm": True},
    rules=GLM4_MOE.rules,
    n_classes=2,
    modernize=_kinds,
    vocab_size=152_064,
    hidden_size=4608,
    intermediate_size=10_944,
    num_hidden_layers=62,
    num_key_value_heads=32,
    max_length=2048,
)

# --- IBM 2025: Granite's with an expert that every position takes -----------------------------------------------------


def _shared_rules(config: ModelConfig) -> Sequence[Rule]:
    assert config.decoder is not None
    experts = config.decoder.experts
    width = 0 if experts is None else experts.shared or 0
    there, ours = "layers.{i}.shared_mlp", "decoder.blocks.{i}.ffn.shared"
    both = fused(f"{there}.input_linear.{{p}}", [f"{ours}.{part}.{{p}}" for part in ("gate", "up")], rows=[width] * 2)
    return (*GRANITE_MOE.rules(config), both, rename(f"{there}.output_linear.{{p}}", f"{ours}.down.{{p}}"))


GRANITE_MOE_SHARED = replace(
    GRANITE_MOE,
    model_type="granitemoeshared",
    fields=(
        *GRANITE_MOE.fields,
        computed(
            "shared_intermediate_size",
            "decoder.experts.shared",
            read=lambda width, _: width or None,
            write=lambda width, _: width or 0,
            default=0,
        ),
    ),
    rules=_shared_rules,
    heads=(
        replace(GRANITE_MOE.heads[0], architecture="GraniteMoeSharedForCausalLM"),
        bare("GraniteMoeSharedModel"),
    ),
)

# --- Tencent 2025 -------------------------------------------------------------------------------------------


def _same_in_all(document: dict[str, Any]) -> dict[str, Any]:
    """Numbers that a list gives each layer, if all are equal."""
    for name in ("num_experts", "moe_topk"):
        if isinstance(said := document.get(name), list) and len({*map(str, said)}) == 1:
            document[name] = said[0]
    return stretched(document)


_HUNYUAN_RULES = mixture_rules(PROJECTIONS, shared="shared_mlp", rest=hunyuan_rules)
HUNYUAN_MOE = hunyuan_like(
    "hunyuan_v1_moe",
    "HunYuanMoEV1",
    BIASES[0],
    same("intermediate_size", "decoder.d_ff", "decoder.experts.shared", default=11_008),
    same("num_experts", "decoder.experts.n", default=1),
    same("moe_topk", "decoder.experts.n_chosen", default=1),
    Alias("num_local_experts", "num_experts"),
    Alias("num_experts_per_tok", "moe_topk"),
    ignored("eod_token_id"),
    constants=TURNED | {"decoder.experts.normalised": True},
    rules=lambda config: (
        rename("layers.{i}.mlp.gate.wg.{p}", "decoder.blocks.{i}.ffn.router.{p}"),
        *_HUNYUAN_RULES(config),
    ),
    modernize=_same_in_all,
)

# --- JetBrains 2026: layers with a window have angles of their own ----------------------------------------------------

_THETAS = {FULL: 500_000.0, LOCAL: 10_000.0}


def _sparse(values: Values) -> list[str]:
    return ["sparse"] * min(values["num_hidden_layers"], MOST_LAYERS)


MELLUM = llama_like(
    "mellum",
    "Mellum",
    BIASES[0],
    *windows(every=1, window=1024),
    *choice(64, 8),
    normalised(True),
    *balance(),
    expert_width(896),
    implied(
        "mlp_layer_types",
        _sparse,
        write=lambda ours: ["sparse"] * ours["decoder"]["n_layers"],
        what="experts in every layer",
    ),
    ignored("mtp_*", "num_mtp_layers", "num_nextn_predict_layers"),
    constants={"decoder.qk_norm": True},
    rules=lambda config: (further("mtp"), *mixture_rules(PROJECTIONS)(config)),
    n_classes=2,
    modernize=layered_modernizer(_THETAS),
    vocab_size=98_304,
    hidden_size=2304,
    intermediate_size=7168,
    num_hidden_layers=28,
    num_key_value_heads=4,
    head_dim=128,
    angles=(*layered_angles(1, _THETAS), *rotary(max_length=131_072)[1:]),
)

# --- Baidu 2025 -------------------------------------------------------------------------------------------------------

_NAMED = {"first_k_dense_replace": "moe_layer_start_index", "n_shared_experts": "moe_num_shared_experts"}


def _ernie_rules(config: ModelConfig) -> Sequence[Rule]:
    n, there = number(config), "layers.{i}.mlp.moe_statics.e_score_correction_bias"
    rules = mixture_rules(PROJECTIONS, shared="shared_experts", rest=cohere_rules)
    return (reshape(there, CORRECTION, there=(1, n), here=(n,)), *rules(config))


ERNIE_4_5_MOE = replace(
    ERNIE_4_5,
    model_type="ernie4_5_moe",
    constants={**ERNIE_4_5.constants, "decoder.experts.correction": True, "decoder.experts.normalised": True},
    fields=(
        *with_defaults(
            without(ERNIE_4_5.fields, "use_bias"),
            hidden_size=2560,
            intermediate_size=12_288,
            num_hidden_layers=28,
            num_attention_heads=20,
            num_key_value_heads=4,
            head_dim=None,
        ),
        same("moe_num_experts", "decoder.experts.n", default=64),
        same("moe_k", "decoder.experts.n_chosen", default=6),
        Alias("num_experts", "moe_num_experts"),
        Alias("num_experts_per_tok", "moe_k"),
        expert_width(1536),
        *(replace(one, theirs=_NAMED[one.theirs]) for one in sparse(shared=2) if one.theirs in _NAMED),
        implied(
            "moe_layer_end_index",
            lambda values: values["num_hidden_layers"] - 1,
            write=lambda ours: ours["decoder"]["n_layers"] - 1,
            what="the last layer",
        ),
        # Its loss that balances experts counts the choices before the correction, and ours those that were made.
        *only(use_bias=False, moe_layer_interval=1, moe_norm_min=1e-12, output_router_logits=False),
        ignored("router_aux_loss_coef"),
    ),
    rules=_ernie_rules,
    heads=decoder_heads("Ernie4_5_Moe", "model.", "bare"),
)

# --- Arcee AI 2025: a window and positions in all layers but each fourth ---------------------------------------------


def _afmoe_rules(_: ModelConfig) -> Sequence[Rule]:
    names = {
        "post_attention_layernorm": "attn_out_norm",
        "pre_mlp_layernorm": "ffn_norm",
        "post_mlp_layernorm": "ffn_out_norm",
        "self_attn.gate_proj": "attn.gate",
        "mlp.router.gate": "ffn.router",
    }
    return renamed(names)


def _local(_: Any, values: Values) -> list[int] | None:
    return window_layers(windowed_layers(values, 4), values["num_hidden_layers"])


_SPARSE = {one.theirs: one for one in sparse()}
_DENSE, _N_SHARED = _SPARSE["first_k_dense_replace"], _SPARSE["n_shared_experts"]
AFMOE = llama_like(
    "afmoe",
    "Afmoe",
    *windows(every=4, window=1024),
    by_layer_types("rotary_layers", _local),
    Alias("global_attn_every_n_layers", of="sliding_window_pattern"),
    *choice(64, 6),
    expert_width(1408),
    replace(_DENSE, theirs="num_dense_layers"),
    replace(_N_SHARED, theirs="num_shared_experts", default=2),
    factor("route_scale", "decoder.experts.scale"),
    same("mup_enabled", "decoder.input.scale", default=False),
    *only(attention_bias=False, output_router_logits=False),
    constants=SIGMOID
    | {
        "decoder.experts.normalised": True,
        "decoder.norm_place": "sandwich",
        "decoder.attn_gate": True,
        "decoder.qk_norm": True,
    },
    rules=mixture_rules(PROJECTIONS, shared="shared_experts", correction="expert_bias", rest=_afmoe_rules),
    n_classes=2,
    vocab_size=200_192,
    hidden_size=2048,
    intermediate_size=6144,
    num_attention_heads=16,
    head_dim=128,
    rms_norm_eps=1e-5,
    max_length=16_384,
)
