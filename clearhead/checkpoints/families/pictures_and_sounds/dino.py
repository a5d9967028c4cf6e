"""DINOv2 and DINOv3: image encoders trained without labels."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.pictures_and_sounds.vit import patch_rules, picture_fields
from clearhead.checkpoints.families.shared import ACTIVATIONS, head_width
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import Field, Values, computed, ignored, named, same
from clearhead.checkpoints.weights.mapping import Rule, derive, rename, reshape
from clearhead.config import ModelConfig, PatchInput
from clearhead.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor
from dataclasses import replace

from clearhead.checkpoints.families.pictures_and_sounds.vit import square
from clearhead.checkpoints.families.shared import labels, problem_type
from clearhead.checkpoints.weights.fields import FieldRule, inherited
from clearhead.checkpoints.weights.mapping import split
from clearhead.config import LearnedGrid

# --- DINOv3 (Simeoni et al. 2025) ----------------------------------------------------------------------------------

SIDES = ("q", "k", "v", "out")
"""Our names of the four matrices of attention."""


def _value_bias(bias: Any, values: Values) -> None:
    if bias != values["query_bias"]:
        raise UserError(
            f"expected query_bias={short(values['query_bias'])}, as queries and values share it, got {bias}"
        )


def _own(field: str, of: str) -> Callable[[Any, Values], bool]:
    """Writes our switch `field`, by default that of `of`, and otherwise `bias`."""

    def write(_: Any, ours: Values) -> bool:
        encoder = ours["encoder"]
        return next(encoder[name] for name in (field, of, "bias") if encoder[name] is not None)

    return write


def _bias(theirs: str, ours: str, *, of: str = "bias", default: bool = True) -> Field:
    return computed(theirs, f"encoder.{ours}", write=_own(ours, of), default=default, like=default)


FIELDS = (
    *picture_fields(patch_size=16),
    same("hidden_size", "encoder.d_model", default=384),
    same("intermediate_size", "encoder.d_ff", default=1536),
    same("num_hidden_layers", "encoder.n_layers", default=12),
    same("num_attention_heads", "encoder.n_heads", default=6),
    named("hidden_act", "encoder.activation", names=ACTIVATIONS, default="gelu"),
    same("attention_dropout", "encoder.attn_dropout", default=0.0),
    same("initializer_range", "init.std", default=0.02),
    same("layer_norm_eps", "encoder.norm_eps", default=1e-5),
    same("rope_theta", "encoder.positions.base", default=100.0),
    _bias("query_bias", "qkv_bias"),
    _bias("key_bias", "key_bias", of="qkv_bias", default=False),
    computed("value_bias", read=_value_bias, write=_own("qkv_bias", "bias"), default=True, like=True),
    _bias("proj_bias", "out_bias"),
    _bias("mlp_bias", "ffn_bias"),
    same("layerscale_value", "encoder.layer_scale", default=1.0),
    same("use_gated_mlp", "encoder.gated", default=False),
    same("num_register_tokens", "encoder.input.n_registers", default=0),
    head_width(),
    # Random changes of positions and whole branches that training drops, and what only a backbone does.
    ignored("pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale", "drop_path_rate"),
    ignored("apply_layernorm", "reshape_hidden_states", "return_class_token", "out_features", "out_indices"),
    ignored("_out_features", "_out_indices", "stage_names"),
)


def dinov3_rules(config: ModelConfig) -> Sequence[Rule]:
    """The library's names: on disk the layers stand at the top, in memory below `model`."""
    stack = config.encoder
    assert stack is not None
    assert isinstance(stack.input, PatchInput)
    d, n = stack.d_model, stack.input.n_registers
    ours = "encoder.blocks.{i}"
    layer = (
        *((f"attention.{name}_proj.{{p}}", f"attn.{here}.{{p}}") for name, here in zip("qkvo", SIDES, strict=True)),
        *((f"mlp.{name}_proj.{{p}}", f"ffn.{name}.{{p}}") for name in ("gate", "up", "down")),
        ("norm1.{p}", "attn_norm.{p}"),
        ("norm2.{p}", "ffn_norm.{p}"),
        ("layer_scale1.lambda1", "attn_scale.weight"),
        ("layer_scale2.lambda1", "ffn_scale.weight"),
    )
    return (
        reshape("embeddings.cls_token", "encoder.embed.class_token", there=[1, 1, d], here=[d]),
        reshape("embeddings.mask_token", "encoder.embed.mask_token", there=[1, 1, d], here=[d]),
        registers(n, d),
        *patch_rules(config, "embeddings.patch_embeddings"),
        *(rename(f"{top}layer.{{i}}.{theirs}", f"{ours}.{here}") for top in ("", "model.") for theirs, here in layer),
        rename("norm.{p}", "encoder.final_norm.{p}"),
    )


def registers(n: int, d: int) -> Rule:
    """The registers. Without any, the library still writes their tensor."""
    if not n:
        return derive("embeddings.register_tokens", partial(no_registers, d))
    return reshape("embeddings.register_tokens", "encoder.embed.registers", there=[1, n, d], here=[n, d])


def no_registers(d: int) -> "Tensor":
    """1 0 d: no registers."""
    import torch

    return torch.zeros(1, 0, d)


DINOV3 = Family(
    model_type="dinov3_vit",
    constants={
        "encoder.input.kind": "patches",
        "encoder.input.mask_token": True,
        "encoder.positions.kind": "rotary_grid",
        "init.depth_scaled": False,
    },
    fields=FIELDS,
    rules=dinov3_rules,
    heads=(HeadMap("DINOv3ViTModel", {"head.kind": "none"}),),
)


# --- DINOv2 (Oquab et al. 2023, Darcet et al. 2023) ----------------------------------------------------------------


def _activation(name: str, values: Values) -> str:
    """The gated form is always SiLU's."""
    return "silu" if values["use_swiglu_ffn"] else ACTIVATION.read(name, values)


def _units(ratio: int, values: Values) -> int:
    """The units of the feed-forward layer; the gated form has two thirds of them, in multiples of 8."""
    units = int(values["hidden_size"] * ratio)
    return (int(units * 2 / 3) + 7) // 8 * 8 if values["use_swiglu_ffn"] else units


def _ratio(units: int, ours: Values) -> int:
    """The least whole ratio that gives this number of units. Raises ValueError if there is none."""
    encoder = ours["encoder"]
    said = {"hidden_size": encoder["d_model"], "use_swiglu_ffn": encoder["gated"]}
    ratio = max(1, int(units / encoder["d_model"]))
    for found in range(ratio, 2 * ratio + 2):
        if _units(found, said) == units:
            return found
    raise ValueError(units)


def _side(image: int | list[int], values: Values) -> int:
    return square(image) // square(values["patch_size"])


def _image(side: int, ours: Values) -> int:
    return side * ours["encoder"]["input"]["patch_size"]


def _written_activation(name: str, ours: Values) -> Any:
    return "gelu" if ours["encoder"]["gated"] else ACTIVATION.write(name, ours)


ACTIVATION = named("hidden_act", "encoder.activation", names=ACTIVATIONS, default="gelu")


def _fields(*, patch_size: int) -> tuple[FieldRule, ...]:
    return (
        *picture_fields(patch_size=patch_size),
        # The positions' grid, in pixels. The pictures themselves may be of another size.
        computed("image_size", "encoder.positions.side", read=_side, write=_image, default=224),
        same("hidden_size", "encoder.d_model", default=768),
        same("num_hidden_layers", "encoder.n_layers", default=12),
        same("num_attention_heads", "encoder.n_heads", default=12),
        same("initializer_range", "init.std", default=0.02),
        same("attention_probs_dropout_prob", "encoder.attn_dropout", default=0.0),
        computed("mlp_ratio", "encoder.d_ff", read=_units, write=_ratio, default=4, like=4),
        replace(ACTIVATION, read=_activation, write=_written_activation),
        same("use_swiglu_ffn", "encoder.gated", default=False),
        same("layer_norm_eps", "encoder.norm_eps", default=1e-6),
        same("layerscale_value", "encoder.layer_scale", default=1.0),
        inherited("hidden_dropout_prob", "encoder.embed_dropout", of="dropout", default=0.0),
        head_width(),
        inherited("qkv_bias", "encoder.qkv_bias", of="bias", default=True),
        # Whole branches that training drops, and what only a backbone does.
        ignored("drop_path_rate", "apply_layernorm", "reshape_hidden_states", "out_features", "out_indices"),
        ignored("_out_features", "_out_indices", "stage_names"),
    )


def dinov2_rules(config: ModelConfig) -> Sequence[Rule]:
    """The library's older names, which it writes, and its newer ones."""
    stack = config.encoder
    assert stack is not None
    assert isinstance(stack.input, PatchInput)
    assert isinstance(stack.positions, LearnedGrid)
    d, table = stack.d_model, [stack.positions.rows, stack.d_model]
    theirs, ours = "encoder.layer.{i}", "encoder.blocks.{i}"
    attention = (
        ("attention.query", "q_proj", "q"),
        ("attention.key", "k_proj", "k"),
        ("attention.value", "v_proj", "v"),
        ("output.dense", "o_proj", "out"),
    )
    return (
        reshape("embeddings.cls_token", "encoder.embed.class_token", there=[1, 1, d], here=[d]),
        reshape("embeddings.mask_token", "encoder.embed.mask_token", there=[1, d], here=[d]),
        reshape("embeddings.position_embeddings", "encoder.positions.table.weight", there=[1, *table], here=table),
        *patch_rules(config, "embeddings.patch_embeddings.projection"),
        *(rename(f"{theirs}.attention.{old}.{{p}}", f"{ours}.attn.{here}.{{p}}") for old, _, here in attention),
        *(rename(f"{theirs}.attention.{new}.{{p}}", f"{ours}.attn.{here}.{{p}}") for _, new, here in attention),
        rename(f"{theirs}.norm1.{{p}}", f"{ours}.attn_norm.{{p}}"),
        rename(f"{theirs}.norm2.{{p}}", f"{ours}.ffn_norm.{{p}}"),
        rename(f"{theirs}.layer_scale1.lambda1", f"{ours}.attn_scale.weight"),
        rename(f"{theirs}.layer_scale2.lambda1", f"{ours}.ffn_scale.weight"),
        *_feed_forward(f"{theirs}.mlp", f"{ours}.ffn", gated=stack.gated),
        rename("layernorm.{p}", "encoder.final_norm.{p}"),
    )


def rules_with_registers(config: ModelConfig) -> Sequence[Rule]:
    """The same, and the registers."""
    assert config.encoder is not None
    assert isinstance(config.encoder.input, PatchInput)
    return (registers(config.encoder.input.n_registers, config.encoder.d_model), *dinov2_rules(config))


def _feed_forward(theirs: str, ours: str, *, gated: bool) -> tuple[Rule, ...]:
    if not gated:
        return rename(f"{theirs}.fc1.{{p}}", f"{ours}.up.{{p}}"), rename(f"{theirs}.fc2.{{p}}", f"{ours}.down.{{p}}")
    return (
        split(f"{theirs}.weights_in.{{p}}", [f"{ours}.gate.{{p}}", f"{ours}.up.{{p}}"]),
        rename(f"{theirs}.weights_out.{{p}}", f"{ours}.down.{{p}}"),
        *(rename(f"{theirs}.{name}_proj.{{p}}", f"{ours}.{name}.{{p}}") for name in ("gate", "up", "down")),
    )


CONSTANTS = {
    "encoder.input.kind": "patches",
    "encoder.positions.kind": "learned_grid",
    "init.depth_scaled": False,
}


def _classifier(architecture: str, prefix: str) -> HeadMap:
    """The head that reads the class token's state and the mean of the patches'."""
    constants = {"head.kind": "classification", "head.pool": "first_and_mean", "head.patches_only": True}
    rules = (rename("classifier.{p}", "head.output.{p}"),)
    return HeadMap(architecture, constants, lambda _: rules, (*labels(), problem_type()), prefix=prefix)


DINOV2 = Family(
    model_type="dinov2",
    constants=CONSTANTS,
    fields=(*_fields(patch_size=14), same("use_mask_token", "encoder.input.mask_token", default=True)),
    rules=dinov2_rules,
    heads=(
        HeadMap("Dinov2Model", {"head.kind": "none"}),
        _classifier("Dinov2ForImageClassification", "dinov2."),
    ),
)

WITH_REGISTERS = Family(
    model_type="dinov2_with_registers",
    constants={**CONSTANTS, "encoder.positions.antialias": True, "encoder.input.mask_token": True},
    fields=(*_fields(patch_size=16), same("num_register_tokens", "encoder.input.n_registers", default=4)),
    rules=rules_with_registers,
    heads=(
        HeadMap("Dinov2WithRegistersModel", {"head.kind": "none"}),
        _classifier("Dinov2WithRegistersForImageClassification", "dinov2_with_registers."),
    ),
)
