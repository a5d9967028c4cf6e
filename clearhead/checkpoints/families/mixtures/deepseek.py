"""Decoders with latent attention: DeepSeek-V2 and V3, GLM-4.7-Flash, Youtu and MiniCPM3."""

from collections.abc import Callable, Sequence
from functools import partial
from math import log, nextafter, sqrt
from typing import Any

from clearhead.checkpoints.families.angles import (
    SCALINGS,
    WITH_LONG,
    Scalings,
    read_angles,
    rotary,
    write_angles,
)
from clearhead.checkpoints.families.decoders.llama import llama_like, renamed
from clearhead.checkpoints.families.mixtures.mixtures import (
    PROJECTIONS,
    SIGMOID,
    choice,
    mixture_rules,
    sparse,
)
from clearhead.checkpoints.families.shared import MOST_LAYERS, decoder_language, width_of, without
from clearhead.checkpoints.weights.fields import (
    Alias,
    Field,
    FieldRules,
    Only,
    Values,
    computed,
    factor,
    ignored,
    implied,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, fused, paired, rename, turned_first
from clearhead.config import ModelConfig
from clearhead.errors import UserError

# --- fields ----------------------------------------------------------------------------------------------------------


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
    scale, width, factor = ours["decoder"]["attn_scale"], width_of(ours["decoder"]), said.get("factor", 1.0)
    if scale is None or scale == width**-0.5:
        return said
    if said["rope_type"] != "yarn" or factor <= 1:
        raise ValueError(scale)
    near = (sqrt(scale * sqrt(width)) - 1) / (0.1 * log(factor))
    return {**said, "mscale_all_dim": exact(near, partial(_scaled, width, factor), scale)}


def exact(near: float, of: Callable[[float], float], value: float) -> float:
    """The number near this one at which the function has exactly the value. Raises ValueError if there is none."""
    for found in (round(near, 9), near, nextafter(near, 0.0), nextafter(near, 2 * near)):
        if of(found) == value:
            return found
    raise ValueError(value)


def latents(
    *, query: int = 1536, rank: int = 512, turned: int = 64, own: int = 128, value: int = 128,
    max_length: int, scalings: Scalings = SCALINGS,
) -> FieldRules:  # fmt: skip
    """The fields of latent attention; the arguments are a family's defaults for absent ones."""
    read, write = partial(read_angles, scalings=scalings), partial(_angles, scalings=scalings)
    return (
        computed("rope_parameters", "decoder.attn_scale", read=_scale, write=lambda *_: {}, default={}),
        computed("rope_parameters", "decoder.positions", read=read, write=write, default={}),
        *rotary(max_length=max_length)[1:],
        computed("qk_rope_head_dim", "decoder.positions.fraction", read=_share, default=turned),
        same("qk_rope_head_dim", "decoder.latent.d_shared", default=turned),
        computed(
            "qk_nope_head_dim",
            "decoder.d_head",
            read=lambda own, values: own + values["qk_rope_head_dim"],
            write=lambda _, ours: width_of(ours["decoder"]) - ours["decoder"]["latent"]["d_shared"],
            default=own,
        ),
        computed("q_lora_rank", "decoder.latent.query_rank", default=query, null=True),
        same("kv_lora_rank", "decoder.latent.rank", default=rank),
        same("v_head_dim", "decoder.latent.d_value", default=value),
        same("attention_bias", "decoder.latent.bias", "decoder.out_bias", default=False),
        ignored("qk_head_dim"),
    )


# Latent attention has widths and angles of its own.
latent_like = partial(llama_like, leave_out=("head_dim", "rope_parameters", "max_position_embeddings"))

# --- tensors ---------------------------------------------------------------------------------------------------------


def latent_rules(config: ModelConfig, *, interleaved: bool = True) -> Sequence[Rule]:
    """Llama's names with latent attention; if `interleaved`, the numbers that rotate together lie side by side."""
    stack = config.output
    latent, width, theirs, ours = stack.latent, stack.head_width, "layers.{i}.self_attn", "decoder.blocks.{i}.attn"
    assert latent is not None
    turned = latent.d_shared
    name = "q_b_proj" if latent.query_rank else "q_proj"
    q = turned_first(rename(f"{theirs}.{name}.{{p}}", f"{ours}.q.{{p}}"), 0, width=width, turned=turned)
    down = [f"{ours}.latent.{name}.{{p}}" for name in ("k", "shared")]
    both = fused(f"{theirs}.kv_a_proj_with_mqa.{{p}}", down, rows=[latent.rank, turned])
    names = {
        "self_attn.q_a_proj": "attn.latent.q",
        "self_attn.q_a_layernorm": "attn.latent.q_norm",
        "self_attn.kv_a_layernorm": "attn.latent.k_norm",
    }
    return (
        *renamed(names, but=("attn.q", "attn.k", "attn.v")),
        paired(q, 0, width=width, rotated=turned) if interleaved else q,
        paired(both, 1, width=turned, rotated=turned) if interleaved else both,
        fused(
            f"{theirs}.kv_b_proj.{{p}}",
            [f"{ours}.{side}.{{p}}" for side in "kv"],
            rows=[width - turned, latent.d_value],
            groups=stack.n_heads,
        ),
    )


_mixed_rules = mixture_rules(
    PROJECTIONS, shared="shared_experts", correction="gate.e_score_correction_bias", rest=latent_rules
)

# --- families --------------------------------------------------------------------------------------------------------

INTERLEAVED = Only("rope_interleave", True)
# Where a file names it, the library takes it for the width of the rotated part.
TURNED = implied(
    "head_dim",
    lambda values: values["qk_rope_head_dim"],
    write=lambda ours: ours["decoder"]["latent"]["d_shared"],
    what="as qk_rope_head_dim says",
)
CONSTANTS = SIGMOID | {"decoder.experts.group_best": 2}
DEEPSEEK_V3 = latent_like(
    "deepseek_v3",
    "DeepseekV3",
    *latents(max_length=4096),
    *choice(256, 8, theirs="n_routed_experts"),
    *sparse(first=3, d_ff=2048, scale=2.5, groups=8, groups_chosen=4),
    INTERLEAVED,
    TURNED,
    ignored("num_mtp_layers", "num_nextn_predict_layers"),
    constants=CONSTANTS,
    rules=_mixed_rules,
    n_classes=4,
    vocab_size=129_280,
    hidden_size=7168,
    intermediate_size=18_432,
    num_hidden_layers=61,
    num_attention_heads=128,
    num_key_value_heads=128,
)
METHODS = ("greedy", "group_limited_greedy")


def _grouped(method: str, _: Values) -> None:
    if method not in METHODS:
        raise UserError(f"expected {' or '.join(METHODS)}, got {method!r}")


def _of_groups(n: int | None, values: Values) -> int | None:
    return n if values["topk_method"] == METHODS[1] else None


def _method(_: Any, ours: Values) -> str:
    experts = ours["decoder"]["experts"]
    return METHODS[(experts["n_groups"] or 1) > (experts["n_groups_chosen"] or experts["n_groups"] or 1)]


DEEPSEEK_V2 = latent_like(
    "deepseek_v2",
    "DeepseekV2",
    *latents(max_length=2048),
    *choice(64, 2, theirs="n_routed_experts", also="num_experts")[:2],
    same("num_experts_per_tok", "decoder.experts.n_chosen"),
    *without(sparse(first=0, d_ff=1407, shared=2), "n_group", "topk_group", "norm_topk_prob"),
    computed("topk_method", read=_grouped, write=_method, default=METHODS[0]),
    computed("n_group", "decoder.experts.n_groups", read=_of_groups, default=None),
    computed("topk_group", "decoder.experts.n_groups_chosen", read=_of_groups, default=None),
    Only("mlp_bias", False),
    # Its network does not read the first, and its config sets the second.
    ignored("norm_topk_prob", "head_dim"),
    rules=_mixed_rules,
    n_classes=3,
    vocab_size=102_400,
    intermediate_size=11_008,
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


GLM4_MOE_LITE = latent_like(
    "glm4_moe_lite",
    "Glm4MoeLite",
    *latents(query=768, own=192, value=256, max_length=202_752),
    *choice(64, 4, theirs="n_routed_experts"),
    *without(sparse(d_ff=1536, scale=1.8), "first_k_dense_replace"),
    computed("mlp_layer_types", "decoder.experts.layers", read=_layers, write=_kinds, default=None),
    INTERLEAVED,
    Alias("head_dim", of="qk_rope_head_dim"),
    constants=CONSTANTS,
    rules=_mixed_rules,
    n_classes=2,
    vocab_size=154_880,
    hidden_size=2048,
    intermediate_size=10_240,
    num_hidden_layers=47,
    num_attention_heads=20,
    num_key_value_heads=20,
    rms_norm_eps=1e-5,
)
YOUTU = latent_like(
    "youtu",
    "Youtu",
    *latents(max_length=131_072),
    INTERLEAVED,
    TURNED,
    ignored("embedding_initializer_range"),
    rules=latent_rules,
    n_classes=2,
    tied=True,
    vocab_size=128_256,
    hidden_size=2048,
    intermediate_size=6144,
    num_attention_heads=16,
    num_key_value_heads=16,
)


# --- MiniCPM3 --------------------------------------------------------------------------------------------------------


def branch_scale(default: float) -> Field:
    """The factor on what branches write, over the root of the number of layers."""

    def depth(scale: float | None, ours: Values) -> float | None:
        root = sqrt(ours["decoder"]["n_layers"])
        return None if scale is None else exact(scale * root, lambda depth: depth / root, scale)

    return computed(
        "scale_depth",
        "decoder.branch_scale",
        read=lambda depth, values: None if depth is None else depth / sqrt(values["num_hidden_layers"]),
        write=depth,
        default=default,
        like=1.0,
        null=True,
    )


def logit_scale(default: int) -> Field:
    """The factor on the states before the output matrix: a width over the network's."""
    return computed(
        "dim_model_base",
        "head.scale",
        read=lambda base, values: None if base is None else base / values["hidden_size"],
        write=lambda scale, ours: None if scale is None else round(scale * ours["decoder"]["d_model"]),
        default=default,
        null=True,
    )


def _value(width: int | None, values: Values) -> int:
    return width or values["hidden_size"] // values["num_attention_heads"]


_MINICPM3 = latents(query=768, rank=256, turned=32, own=64, max_length=32_768, scalings={**SCALINGS, **WITH_LONG})
MINICPM3 = latent_like(
    "minicpm3",
    "MiniCPM3",
    *without(_MINICPM3, "v_head_dim"),
    factor("scale_emb", "decoder.input.factor", default=12),
    branch_scale(1.4),
    Only("mlp_bias", False),
    computed("v_head_dim", "decoder.latent.d_value", read=_value, default=None),
    ignored("dim_model_base", "logits_scaling", "head_dim"),
    rules=partial(latent_rules, interleaved=False),
    words=decoder_language("MiniCPM3ForCausalLM", "model.", logit_scale(256)),
    n_classes=3,
    vocab_size=73_448,
    hidden_size=2560,
    intermediate_size=6400,
    num_hidden_layers=62,
    num_attention_heads=40,
    num_key_value_heads=40,
    rms_norm_eps=1e-5,
    initializer_range=0.1,
)
