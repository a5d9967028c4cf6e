"""Decoders with latent attention: DeepSeek-V2 and V3 (DeepSeek-AI 2024) and GLM-4.7-Flash (GLM Team 2026), with
experts; Youtu (Tencent 2026); MiniCPM3 (Hu et al. 2024), with multipliers.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

from clearhead.checkpoints.families.decoders.llama import CONSTANTS, heads
from clearhead.checkpoints.families.decoders.llama import rules as llama_rules
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.mixtures.latent import attention_rules, exact, latent_sizes, latents
from clearhead.checkpoints.families.mixtures.mixtures import PROJECTIONS, choice
from clearhead.checkpoints.families.mixtures.mixtures import rules as expert_rules
from clearhead.checkpoints.families.mixtures.sigmoid_mixtures import CORRECTION, SIGMOID, more_layers, sparse
from clearhead.checkpoints.families.rotary import SCALINGS, WITH_LONG, modern
from clearhead.checkpoints.families.shared import MOST_LAYERS
from clearhead.checkpoints.weights.fields import Alias, Only, Values, computed, ignored, implied, same
from clearhead.checkpoints.weights.mapping import Rule, rename
from clearhead.config import ModelConfig
from clearhead.errors import UserError


def _dense_rules(config: ModelConfig) -> Sequence[Rule]:
    return attention_rules(config, llama_rules(config))


def _mixed_rules(config: ModelConfig) -> Sequence[Rule]:
    correction = rename("layers.{i}.mlp.gate.e_score_correction_bias", CORRECTION)
    table = expert_rules(PROJECTIONS, shared="shared_experts")(config)
    return (more_layers(config), correction, *attention_rules(config, table))


# --- families --------------------------------------------------------------------------------------------------------

INTERLEAVED = Only("rope_interleave", True)
# Where a file names it, the library takes it for the width of the rotated part.
TURNED = implied(
    "head_dim",
    lambda values: values["qk_rope_head_dim"],
    write=lambda ours: ours["decoder"]["latent"]["d_shared"],
    what="as qk_rope_head_dim says",
)
DEEPSEEK_V3 = Family(
    model_type="deepseek_v3",
    constants=CONSTANTS | SIGMOID | {"decoder.experts.group_best": 2},
    fields=(
        *latent_sizes(
            vocab_size=129_280,
            hidden_size=7168,
            intermediate_size=18_432,
            layers=61,
            n_heads=128,
            kv_heads=128,
        ),
        *latents(max_length=4096),
        *choice(256, 8, theirs="n_routed_experts"),
        *sparse(first=3, d_ff=2048, scale=2.5, groups=8, groups_chosen=4),
        INTERLEAVED,
        TURNED,
        ignored("num_mtp_layers", "num_nextn_predict_layers"),
    ),
    rules=_mixed_rules,
    heads=heads("DeepseekV3")[:4],
    modernize=modern,
)
# Moonshot AI 2025: the same under another name.
KIMI_K2 = replace(DEEPSEEK_V3, model_type="kimi_k2", read_only=True)


def _grouped(method: str, _: Values) -> None:
    if method not in METHODS:
        raise UserError(f"expected {' or '.join(METHODS)}, got {method!r}")


def _of_groups(n: int | None, values: Values) -> int | None:
    return n if values["topk_method"] == METHODS[1] else None


def _method(_: Any, ours: Values) -> str:
    experts = ours["decoder"]["experts"]
    return METHODS[(experts["n_groups"] or 1) > (experts["n_groups_chosen"] or experts["n_groups"] or 1)]


METHODS = ("greedy", "group_limited_greedy")
_WITHOUT = ("n_group", "topk_group", "norm_topk_prob")
DEEPSEEK_V2 = Family(
    model_type="deepseek_v2",
    constants=CONSTANTS,
    fields=(
        *latent_sizes(vocab_size=102_400, intermediate_size=11_008, kv_heads=None),
        *latents(max_length=2048),
        *choice(64, 2, theirs="n_routed_experts", also="num_experts")[:2],
        same("num_experts_per_tok", "decoder.experts.n_chosen"),
        *(one for one in sparse(first=0, d_ff=1407, shared=2) if one.theirs not in _WITHOUT),
        computed("topk_method", read=_grouped, write=_method, default=METHODS[0], like=""),
        computed("n_group", "decoder.experts.n_groups", read=_of_groups, default=None),
        computed("topk_group", "decoder.experts.n_groups_chosen", read=_of_groups, default=None),
        Only("mlp_bias", False),
        # Its network does not read the first, and its config sets the second.
        ignored("norm_topk_prob", "head_dim"),
    ),
    rules=_mixed_rules,
    heads=heads("DeepseekV2")[:3],
    modernize=modern,
)


def _layers(kinds: list[str] | None, values: Values) -> list[int] | None:
    n = values["num_hidden_layers"]
    kinds = ["dense", *["sparse"] * (min(n, MOST_LAYERS) - 1)] if kinds is None else kinds
    if len(kinds) != n or {*kinds} - {"dense", "sparse"}:
        raise UserError(f"expected dense or sparse for each of {n} layers, got {kinds}")
    found = [i for i, kind in enumerate(kinds) if kind == "sparse"]
    return None if len(found) == n else found


def _kinds(layers: Sequence[int] | None, ours: Values) -> list[str]:
    n = ours["decoder"]["n_layers"]
    return ["sparse" if layers is None or i in layers else "dense" for i in range(n)]


GLM4_MOE_LITE = Family(
    model_type="glm4_moe_lite",
    constants=DEEPSEEK_V3.constants,
    fields=(
        *latent_sizes(
            vocab_size=154_880,
            hidden_size=2048,
            intermediate_size=10_240,
            layers=47,
            n_heads=20,
            kv_heads=20,
            eps=1e-5,
        ),
        *latents(query=768, own=192, value=256, max_length=202_752),
        *choice(64, 4, theirs="n_routed_experts"),
        *(one for one in sparse(d_ff=1536, scale=1.8) if one.theirs != "first_k_dense_replace"),
        computed("mlp_layer_types", "decoder.experts.layers", read=_layers, write=_kinds, default=None),
        INTERLEAVED,
        Alias("head_dim", of="qk_rope_head_dim"),
    ),
    rules=_mixed_rules,
    heads=heads("Glm4MoeLite")[:2],
    modernize=modern,
)
YOUTU = Family(
    model_type="youtu",
    constants=CONSTANTS,
    fields=(
        *latent_sizes(vocab_size=128_256, hidden_size=2048, intermediate_size=6144, n_heads=16, kv_heads=16),
        *latents(max_length=131_072),
        INTERLEAVED,
        TURNED,
        ignored("embedding_initializer_range"),
    ),
    rules=_dense_rules,
    heads=heads("Youtu", tied=True)[:2],
    modernize=modern,
)


# --- MiniCPM3 --------------------------------------------------------------------------------------------------------


def _branch(depth: float | None, values: Values) -> float | None:
    return None if depth is None else depth / sqrt(values["num_hidden_layers"])


def _depth(scale: float | None, ours: Values) -> float | None:
    root = sqrt(ours["decoder"]["n_layers"])
    return None if scale is None else exact(scale * root, lambda depth: depth / root, scale)


def _logits(base: int | None, values: Values) -> float | None:
    return None if base is None else base / values["hidden_size"]


def _base(scale: float | None, ours: Values) -> int | None:
    return None if scale is None else round(scale * ours["decoder"]["d_model"])


def _value(width: int | None, values: Values) -> int:
    return width or values["hidden_size"] // values["num_attention_heads"]


_WORDS, *_OTHERS = heads("MiniCPM3", tied=True)[:3]
_BASE = computed("dim_model_base", "head.scale", read=_logits, write=_base, default=256)
_MINICPM3 = latents(query=768, rank=256, turned=32, own=64, max_length=32_768, scalings={**SCALINGS, **WITH_LONG})
MINICPM3 = Family(
    model_type="minicpm3",
    constants=CONSTANTS,
    fields=(
        *latent_sizes(
            vocab_size=73_448,
            hidden_size=2560,
            intermediate_size=6400,
            layers=62,
            n_heads=40,
            kv_heads=40,
            eps=1e-5,
            std=0.1,
        ),
        *(one for one in _MINICPM3 if one.theirs != "v_head_dim"),
        computed(
            "scale_emb",
            "decoder.input.factor",
            read=lambda factor, _: float(factor),
            write=lambda factor, _: 1.0 if factor is None else factor,
            default=12,
            like=1.0,
        ),
        computed("scale_depth", "decoder.branch_scale", read=_branch, write=_depth, default=1.4),
        Only("mlp_bias", False),
        computed("v_head_dim", "decoder.latent.d_value", read=_value, default=None),
        ignored("dim_model_base", "logits_scaling", "head_dim"),
    ),
    rules=lambda config: attention_rules(config, llama_rules(config), neighbours=False),
    heads=(replace(_WORDS, fields=(*_WORDS.fields, _BASE)), *_OTHERS),
    modernize=modern,
)
