"""Decoders with latent attention: DeepSeek-V2 and V3, GLM-4.7-Flash, Youtu and MiniCPM3."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import log, nextafter, sqrt
from typing import Any

from clearhead.checkpoints.families.angles import (
    SCALINGS,
    WITH_LONG,
    Scalings,
    modern,
    read_angles,
    rotary,
    write_angles,
)
from clearhead.checkpoints.families.decoders.llama import LLAMA_CONSTANTS, llama_heads, llama_rules, llama_sizes
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.mixtures.mixtures import (
    CORRECTION,
    PROJECTIONS,
    SIGMOID,
    choice,
    mixture_rules,
    more_layers,
    sparse,
)
from clearhead.checkpoints.families.shared import MOST_LAYERS
from clearhead.checkpoints.weights.fields import Alias, Field, FieldRule, Only, Values, computed, ignored, implied, same
from clearhead.checkpoints.weights.mapping import Rule, fused, paired, rename, renames, turned_first
from clearhead.config import ModelConfig
from clearhead.errors import UserError

# --- what they share -----------------------------------------------------------------------------------------------

# --- fields ----------------------------------------------------------------------------------------------------------


def _width(ours: Values) -> int:
    stack = ours["decoder"]
    return stack["d_head"] or stack["d_model"] // stack["n_heads"]


def _share(turned: int, values: Values) -> float:
    """The share of a head that rotates, such that the whole part of share * width is `turned`."""
    width = turned + values["qk_nope_head_dim"]
    share = turned / width
    return share if int(width * share) == turned else nextafter(share, 1.0)


def _scale(said: dict[str, Any], values: Values) -> float | None:
    """The factor on the scores where yarn changes it."""
    if not said.get("mscale_all_dim") or said.get("rope_type", said.get("type", "default")) == "default":
        return None
    return _scaled(values["qk_nope_head_dim"] + values["qk_rope_head_dim"], said["factor"], said["mscale_all_dim"])


def _scaled(width: int, factor: float, grows: float) -> float:
    magnitude = 0.1 * grows * log(factor) + 1.0 if factor > 1 else 1.0
    return width**-0.5 * magnitude * magnitude


def _angles(positions: Values, ours: Values, *, scalings: Scalings) -> dict[str, Any]:
    """Our angles and our factor on the scores -> theirs. Raises ValueError if theirs cannot express them."""
    said = write_angles({**positions, "fraction": 1.0}, scalings=scalings)
    scale, width, factor = ours["decoder"]["attn_scale"], _width(ours), said.get("factor", 1.0)
    if scale is None or scale == width**-0.5:
        return said
    if said["rope_type"] != "yarn" or factor <= 1:
        raise ValueError(scale)
    near = (sqrt(scale * sqrt(width)) - 1) / (0.1 * log(factor))
    return {**said, "mscale_all_dim": exact(near, partial(_scaled, width, factor), scale)}


def exact(near: float, of: Callable[[float], float], value: float) -> float:
    """The number near this one of which the function is exactly the value. Raises ValueError if there is none."""
    for found in (round(near, 9), near, nextafter(near, 0.0), nextafter(near, 2 * near)):
        if of(found) == value:
            return found
    raise ValueError(value)


def latents(
    *, query: int = 1536, rank: int = 512, turned: int = 64, own: int = 128, value: int = 128,
    max_length: int, scalings: Scalings = SCALINGS,
) -> tuple[FieldRule, ...]:  # fmt: skip
    """The fields of latent attention; the arguments are a family's defaults for absent ones."""
    read, write = partial(read_angles, scalings=scalings), partial(_angles, scalings=scalings)
    return (
        computed("rope_parameters", "decoder.attn_scale", read=_scale, write=lambda *_: {}, default={}),
        computed("rope_parameters", "decoder.positions", read=read, write=write, default={}),
        *rotary(max_length=max_length)[1:],
        computed("qk_rope_head_dim", "decoder.positions.fraction", read=_share, default=turned, like=turned),
        same("qk_rope_head_dim", "decoder.latent.d_shared", default=turned),
        computed(
            "qk_nope_head_dim",
            "decoder.d_head",
            read=lambda own, values: own + values["qk_rope_head_dim"],
            write=lambda _, ours: _width(ours) - ours["decoder"]["latent"]["d_shared"],
            default=own,
            like=own,
        ),
        computed("q_lora_rank", "decoder.latent.query_rank", default=query),
        same("kv_lora_rank", "decoder.latent.rank", default=rank),
        same("v_head_dim", "decoder.latent.d_value", default=value),
        same("attention_bias", "decoder.latent.bias", "decoder.out_bias", default=False),
        ignored("qk_head_dim"),
    )


def latent_sizes(**defaults: Any) -> list[FieldRule]:
    """Llama's, without the width of a head and the angles."""
    left_out = ("head_dim", "rope_parameters", "max_position_embeddings")
    return [one for one in llama_sizes(**defaults) if not isinstance(one, Field) or one.theirs not in left_out]


# --- tensors ---------------------------------------------------------------------------------------------------------


def attention_rules(config: ModelConfig, rest: Sequence[Rule], *, neighbours: bool = True) -> Sequence[Rule]:
    """Latent attention in place of Llama's; with `neighbours` the numbers that rotate together lie side by side."""
    stack = config.output
    latent, width, theirs, ours = stack.latent, stack.head_width, "layers.{i}.self_attn", "decoder.blocks.{i}.attn"
    assert latent is not None
    turned, kept = latent.d_shared, ("o_proj", "inv_freq")
    names = ("q_b_proj", "q_proj") if latent.query_rank else ("q_proj", "q_b_proj")
    q = turned_first(rename(f"{theirs}.{names[0]}.{{p}}", f"{ours}.q.{{p}}"), 0, width=width, turned=turned)
    down = [f"{ours}.latent.{name}.{{p}}" for name in ("k", "shared")]
    both = fused(f"{theirs}.kv_a_proj_with_mqa.{{p}}", down, rows=[latent.rank, turned])
    if neighbours:
        q = paired(q, 0, width=width, rotated=turned)
        both = paired(both, 1, width=turned, rotated=turned)
    return (
        *(rule for rule in rest if "self_attn" not in rule.theirs[0] or any(name in rule.theirs[0] for name in kept)),
        q,
        both,
        *renames(
            theirs,
            ours,
            {
                "q_a_proj": "latent.q",
                "q_a_layernorm": "latent.q_norm",
                "kv_a_layernorm": "latent.k_norm",
            },
        ),
        fused(
            f"{theirs}.kv_b_proj.{{p}}",
            [f"{ours}.{side}.{{p}}" for side in "kv"],
            rows=[width - turned, latent.d_value],
            groups=stack.n_heads,
        ),
    )


# --- families ------------------------------------------------------------------------------------------------------


def _dense_rules(config: ModelConfig) -> Sequence[Rule]:
    return attention_rules(config, llama_rules(config))


def _mixed_rules(config: ModelConfig) -> Sequence[Rule]:
    correction = rename("layers.{i}.mlp.gate.e_score_correction_bias", CORRECTION)
    table = mixture_rules(PROJECTIONS, shared="shared_experts")(config)
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
    constants=LLAMA_CONSTANTS | SIGMOID | {"decoder.experts.group_best": 2},
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
    heads=llama_heads("DeepseekV3")[:4],
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
    constants=LLAMA_CONSTANTS,
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
    heads=llama_heads("DeepseekV2")[:3],
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
    heads=llama_heads("Glm4MoeLite")[:2],
    modernize=modern,
)
YOUTU = Family(
    model_type="youtu",
    constants=LLAMA_CONSTANTS,
    fields=(
        *latent_sizes(vocab_size=128_256, hidden_size=2048, intermediate_size=6144, n_heads=16, kv_heads=16),
        *latents(max_length=131_072),
        INTERLEAVED,
        TURNED,
        ignored("embedding_initializer_range"),
    ),
    rules=_dense_rules,
    heads=llama_heads("Youtu", tied=True)[:2],
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


_WORDS, *_OTHERS = llama_heads("MiniCPM3", tied=True)[:3]
_BASE = computed("dim_model_base", "head.scale", read=_logits, write=_base, default=256)
_MINICPM3 = latents(query=768, rank=256, turned=32, own=64, max_length=32_768, scalings={**SCALINGS, **WITH_LONG})
MINICPM3 = Family(
    model_type="minicpm3",
    constants=LLAMA_CONSTANTS,
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
