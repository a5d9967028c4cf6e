"""DINOv2 and DINOv3: image encoders trained without labels."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.pictures_and_sounds.vit import patch_rules, patches_of, picture_fields, square
from clearhead.checkpoints.families.shared import ACTIVATIONS, bare, bias, classes, head_width, sizes
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import FieldRule, Values, computed, ignored, inherited, named, same
from clearhead.checkpoints.weights.mapping import Rule, derive, modules, rename, reshape, split
from clearhead.config import LearnedGrid, ModelConfig
from clearhead.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

# What training does with whole branches and positions, and what only a backbone does.
UNREAD = ignored(
    *("drop_path_rate", "apply_layernorm", "reshape_hidden_states", "return_class_token"),
    *("out_features", "out_indices", "_out_features", "_out_indices", "stage_names"),
    *("pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale"),
)

# --- DINOv3 (Simeoni et al. 2025) ----------------------------------------------------------------------------------


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


def _modules(names: dict[str, str], top: str = "encoder.") -> tuple[Rule, ...]:
    """The norms and scales of the blocks, and other modules."""
    theirs, ours = f"{top}layer.{{i}}", "encoder.blocks.{i}"
    return (
        *modules("encoder", theirs, {"norm1": "attn_norm", "norm2": "ffn_norm", **names}),
        rename(f"{theirs}.layer_scale1.lambda1", f"{ours}.attn_scale.weight"),
        rename(f"{theirs}.layer_scale2.lambda1", f"{ours}.ffn_scale.weight"),
    )


def dinov3_rules(config: ModelConfig) -> Sequence[Rule]:
    """The library's names: on disk the layers stand at the top, in memory below `model`."""
    stack, reads = patches_of(config)
    d, names = (
        stack.d_model,
        {
            "norm": "final_norm",
            "attention.q_proj": "attn.q",
            "attention.k_proj": "attn.k",
            "attention.v_proj": "attn.v",
            "attention.o_proj": "attn.out",
            "mlp.gate_proj": "ffn.gate",
            "mlp.up_proj": "ffn.up",
            "mlp.down_proj": "ffn.down",
        },
    )
    return (
        reshape("embeddings.cls_token", "encoder.embed.class_token", there=[1, 1, d], here=[d]),
        reshape("embeddings.mask_token", "encoder.embed.mask_token", there=[1, 1, d], here=[d]),
        registers(reads.n_registers, d),
        *patch_rules(config, "embeddings.patch_embeddings"),
        *(rule for top in ("", "model.") for rule in _modules(names, top)),
    )


def registers(n: int, d: int) -> Rule:
    """The registers. Without any, the library still writes their tensor."""
    if not n:
        return derive("embeddings.register_tokens", lambda: no_registers(d))
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
    fields=(
        *picture_fields(patch_size=16),
        *sizes(
            "encoder",
            hidden_size=384,
            intermediate_size=1536,
            num_hidden_layers=12,
            num_attention_heads=6,
            hidden_act="gelu",
            attention_dropout=0.0,
            initializer_range=0.02,
            layer_norm_eps=1e-5,
        ),
        same("rope_theta", "encoder.positions.base", default=100.0),
        bias("query_bias", "qkv", default=True, stack="encoder"),
        computed("key_bias", "encoder.key_bias", write=_own("key_bias", "qkv_bias"), default=False),
        computed("value_bias", read=_value_bias, write=_own("qkv_bias", "bias"), default=True),
        bias("proj_bias", "out", default=True, stack="encoder"),
        bias("mlp_bias", "ffn", default=True, stack="encoder"),
        same("layerscale_value", "encoder.layer_scale", default=1.0),
        same("use_gated_mlp", "encoder.gated", default=False),
        same("num_register_tokens", "encoder.input.n_registers", default=0),
        head_width(),
        UNREAD,
    ),
    rules=dinov3_rules,
    heads=(bare("DINOv3ViTModel"),),
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


ACTIVATION = named("hidden_act", "encoder.activation", names=ACTIVATIONS, default="gelu")


def _written_activation(name: str, ours: Values) -> Any:
    return "gelu" if ours["encoder"]["gated"] else ACTIVATION.write(name, ours)


def _fields(*, patch_size: int) -> tuple[FieldRule, ...]:
    return (
        *picture_fields(patch_size=patch_size),
        # The positions' grid, in pixels. The pictures themselves may be of another size.
        computed(
            "image_size",
            "encoder.positions.side",
            read=lambda image, values: square(image) // square(values["patch_size"]),
            write=lambda side, ours: side * ours["encoder"]["input"]["patch_size"],
            default=224,
            like=None,
        ),
        *sizes(
            "encoder",
            hidden_size=768,
            num_hidden_layers=12,
            num_attention_heads=12,
            initializer_range=0.02,
            attention_probs_dropout_prob=0.0,
            layer_norm_eps=1e-6,
        ),
        computed("mlp_ratio", "encoder.d_ff", read=_units, write=_ratio, default=4),
        replace(ACTIVATION, read=_activation, write=_written_activation),
        same("use_swiglu_ffn", "encoder.gated", default=False),
        same("layerscale_value", "encoder.layer_scale", default=1.0),
        inherited("hidden_dropout_prob", "encoder.embed_dropout", of="dropout", default=0.0),
        head_width(),
        bias("qkv_bias", "qkv", default=True, stack="encoder"),
        UNREAD,
    )


PLAIN = {"mlp.fc1": "ffn.up", "mlp.fc2": "ffn.down"}
GATED = {
    "mlp.weights_out": "ffn.down",
    "mlp.gate_proj": "ffn.gate",
    "mlp.up_proj": "ffn.up",
    "mlp.down_proj": "ffn.down",
}
OLDER = {
    "attention.attention.query": "attn.q",
    "attention.attention.key": "attn.k",
    "attention.attention.value": "attn.v",
    "attention.output.dense": "attn.out",
}
NEWER = {
    "attention.q_proj": "attn.q",
    "attention.k_proj": "attn.k",
    "attention.v_proj": "attn.v",
    "attention.o_proj": "attn.out",
}


def dinov2_rules(config: ModelConfig) -> Sequence[Rule]:
    """The library's older names, which it writes, and its newer ones."""
    stack, _ = patches_of(config)
    assert isinstance(stack.positions, LearnedGrid)
    d, table = stack.d_model, [stack.positions.rows, stack.d_model]
    gate_and_up = [f"encoder.blocks.{{i}}.ffn.{name}.{{p}}" for name in ("gate", "up")]
    return (
        reshape("embeddings.cls_token", "encoder.embed.class_token", there=[1, 1, d], here=[d]),
        reshape("embeddings.mask_token", "encoder.embed.mask_token", there=[1, d], here=[d]),
        reshape("embeddings.position_embeddings", "encoder.positions.table.weight", there=[1, *table], here=table),
        *patch_rules(config, "embeddings.patch_embeddings.projection"),
        *([split("encoder.layer.{i}.mlp.weights_in.{p}", gate_and_up)] if stack.gated else []),
        *_modules({"layernorm": "final_norm", **OLDER, **NEWER, **(GATED if stack.gated else PLAIN)}),
    )


def rules_with_registers(config: ModelConfig) -> Sequence[Rule]:
    """The same, and the registers."""
    stack, reads = patches_of(config)
    return (registers(reads.n_registers, stack.d_model), *dinov2_rules(config))


CONSTANTS = {
    "encoder.input.kind": "patches",
    "encoder.positions.kind": "learned_grid",
    "init.depth_scaled": False,
}


def _heads(name: str, prefix: str) -> tuple[HeadMap, ...]:
    """The states, and the head that reads the class token's state and the mean of the patches'."""
    constants = {"head.kind": "classification", "head.pool": "first_and_mean", "head.patches_only": True}
    classifier = HeadMap(
        f"{name}ForImageClassification", constants, fields=classes(), prefix=prefix, names={"classifier": "output"}
    )
    return bare(f"{name}Model"), classifier


DINOV2 = Family(
    model_type="dinov2",
    constants=CONSTANTS,
    fields=(*_fields(patch_size=14), same("use_mask_token", "encoder.input.mask_token", default=True)),
    rules=dinov2_rules,
    heads=_heads("Dinov2", "dinov2."),
)

WITH_REGISTERS = Family(
    model_type="dinov2_with_registers",
    constants={**CONSTANTS, "encoder.positions.antialias": True, "encoder.input.mask_token": True},
    fields=(*_fields(patch_size=16), same("num_register_tokens", "encoder.input.n_registers", default=4)),
    rules=rules_with_registers,
    heads=_heads("Dinov2WithRegisters", "dinov2_with_registers."),
)
