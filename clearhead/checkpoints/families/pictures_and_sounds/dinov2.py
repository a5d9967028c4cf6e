"""The image encoders of Oquab et al. 2023, and those with registers of Darcet et al. 2023.

Their processors crop pictures to another size than that of the config, for whose grid of patches the positions are
interpolated.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.pictures_and_sounds.dinov3 import registers
from clearhead.checkpoints.families.pictures_and_sounds.vit import patch_rules, picture_fields, square
from clearhead.checkpoints.families.shared import ACTIVATIONS, head_width, labels, problem_type
from clearhead.checkpoints.weights.fields import FieldRule, Values, computed, ignored, inherited, named, same
from clearhead.checkpoints.weights.mapping import Rule, rename, reshape, split
from clearhead.config import LearnedGrid, ModelConfig, PatchInput


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


def rules(config: ModelConfig) -> Sequence[Rule]:
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
    return (registers(config.encoder.input.n_registers, config.encoder.d_model), *rules(config))


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


FAMILY = Family(
    model_type="dinov2",
    constants=CONSTANTS,
    fields=(*_fields(patch_size=14), same("use_mask_token", "encoder.input.mask_token", default=True)),
    rules=rules,
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
