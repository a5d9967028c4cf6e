"""What decoders with latent attention share: their fields, and the order of rows in their matrices."""

from collections.abc import Callable, Sequence
from functools import partial
from math import log, nextafter, sqrt
from typing import Any

from clearhead.checkpoints.families import rotary
from clearhead.checkpoints.families.decoders.llama import sizes
from clearhead.checkpoints.families.rotary import SCALINGS, Scalings
from clearhead.checkpoints.weights.fields import Field, FieldRule, Values, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, rename
from clearhead.checkpoints.weights.rows import fused, paired, turned_first
from clearhead.config import ModelConfig

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
    said = rotary.write({**positions, "fraction": 1.0}, scalings=scalings)
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
    read, write = partial(rotary.read, scalings=scalings), partial(_angles, scalings=scalings)
    return (
        computed("rope_parameters", "decoder.attn_scale", read=_scale, write=lambda *_: {}, default={}),
        computed("rope_parameters", "decoder.positions", read=read, write=write, default={}),
        *rotary.rotary(max_length=max_length)[1:],
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
    return [one for one in sizes(**defaults) if not isinstance(one, Field) or one.theirs not in left_out]


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
        rename(f"{theirs}.q_a_proj.{{p}}", f"{ours}.latent.q.{{p}}"),
        rename(f"{theirs}.q_a_layernorm.{{p}}", f"{ours}.latent.q_norm.{{p}}"),
        rename(f"{theirs}.kv_a_layernorm.{{p}}", f"{ours}.latent.k_norm.{{p}}"),
        fused(
            f"{theirs}.kv_b_proj.{{p}}",
            [f"{ours}.{side}.{{p}}" for side in "kv"],
            rows=[width - turned, latent.d_value],
            groups=stack.n_heads,
        ),
    )
