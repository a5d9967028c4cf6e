"""Image encoders: ViT and DeiT, and DINOv2 and DINOv3, which are trained without labels."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import (
    ACTIVATIONS,
    bare,
    bias,
    classes,
    encoder_sizes,
    head_width,
    pooler_rules,
    sizes,
)
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import (
    FieldRules,
    Only,
    Values,
    computed,
    equal,
    ignored,
    inherited,
    named,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, derive, leave_out, modules, rename, reshape, split
from clearhead.config import LearnedGrid, ModelConfig, PatchInput, StackConfig
from clearhead.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


def square(size: int | list[int], _: Values | None = None) -> int:
    """The side of a square, given as one number or two equal ones."""
    sides = size if isinstance(size, list) else [size, size]
    if len(sides) != 2 or sides[0] != sides[1] or type(sides[0]) is not int or sides[0] < 1:
        raise UserError(f"expected a square, one number or twice the same, got {short(size)}")
    return sides[0]


def picture_fields(*, patch_size: int, n_first: int | None = None) -> FieldRules:
    """The sizes of pictures and patches, and of a table of positions for them and the `n_first` cells before them."""

    def length(image: int | list[int], values: Values) -> int:
        return (square(image) // square(values["patch_size"])) ** 2 + (n_first or 0)

    def written(_: Any, ours: Values) -> int:
        return ours["encoder"]["input"]["image_size"]

    table = computed("image_size", "encoder.positions.max_length", read=length, write=written, default=224, like=None)
    return (
        computed("image_size", "encoder.input.image_size", read=square, default=224, like=None),
        computed("patch_size", "encoder.input.patch_size", read=square, default=patch_size, like=None),
        same("num_channels", "encoder.input.n_channels", default=3),
        *([] if n_first is None else [table]),
    )


def vit_fields(*, n_first: int) -> FieldRules:
    """The whole map, where so many cells before the patches have positions."""
    return (
        *picture_fields(patch_size=16, n_first=n_first),
        *encoder_sizes(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
        head_width(),
        bias("qkv_bias", "qkv", default=True, stack="encoder"),
        # encoder_stride belongs to a pixel decoder, and the pooler to the bare model only.
        ignored("encoder_stride", "pooler_output_size", "pooler_act"),
    )


def patches_of(config: ModelConfig) -> tuple[StackConfig, PatchInput]:
    """The encoder, and its input."""
    assert config.encoder is not None
    assert isinstance(config.encoder.input, PatchInput)
    return config.encoder, config.encoder.input


def patch_rules(config: ModelConfig, there: str) -> Sequence[Rule]:
    """The convolution over patches, whose kernels become a matrix. `there` is its name."""
    stack, reads = patches_of(config)
    d, side, channels = stack.d_model, reads.patch_size, reads.n_channels
    kernels, here = [d, channels, side, side], "encoder.embed.patches"
    bias = (rename(f"{there}.bias", f"{here}.bias"),) if reads.bias else ()
    return reshape(f"{there}.weight", f"{here}.weight", there=kernels, here=[d, channels * side * side]), *bias


CLASS = "encoder.embed.class_token"
OLDER = {
    "attention.attention.query": "attn.q",
    "attention.attention.key": "attn.k",
    "attention.attention.value": "attn.v",
    "attention.output.dense": "attn.out",
    "intermediate.dense": "ffn.up",
    "output.dense": "ffn.down",
    "layernorm_before": "attn_norm",
    "layernorm_after": "ffn_norm",
}
NEWER = {
    "attention.q_proj": "attn.q",
    "attention.k_proj": "attn.k",
    "attention.v_proj": "attn.v",
    "attention.o_proj": "attn.out",
    "mlp.fc1": "ffn.up",
    "mlp.fc2": "ffn.down",
    "layernorm_before": "attn_norm",
    "layernorm_after": "ffn_norm",
}


def vit_rules(config: ModelConfig) -> Sequence[Rule]:
    """Turns the patch convolution's kernels into a matrix, and renames from the library's older and newer names."""
    stack, reads = patches_of(config)
    d, table = stack.d_model, [reads.length, stack.d_model]
    return (
        *([reshape("embeddings.cls_token", CLASS, there=[1, 1, d], here=[d])] if reads.class_token else []),
        reshape("embeddings.position_embeddings", "encoder.positions.table.weight", there=[1, *table], here=table),
        *patch_rules(config, "embeddings.patch_embeddings.projection"),
        *modules("encoder", "encoder.layer.{i}", {"layernorm": "final_norm", **OLDER}),
        *modules("encoder", "layers.{i}", NEWER),
        leave_out("embeddings.mask_token", because="no patch is masked here"),
    )


def vit_classifier(architecture: str, prefix: str, *, teacher: bool = False) -> HeadMap:
    """The head that reads the class token's state, and with a `teacher` that of the token that learns from it."""
    because = "this head reads the class token's state, not the pooled one"
    return HeadMap(
        architecture,
        {"head.kind": "classification", "head.distilled": teacher},
        lambda _: (leave_out(f"{prefix}pooler.dense.{{p}}", because=because),),
        classes(),
        prefix=prefix,
        names={"cls_classifier": "output", "distillation_classifier": "distilled"}
        if teacher
        else {"classifier": "output"},
    )


def vit_bare(architecture: str) -> HeadMap:
    """The states, and a pooler if its tensors are there."""
    size = equal("pooler_output_size", "hidden_size", "encoder.d_model")
    return bare(
        architecture,
        pooler_rules,
        fields=(size, Only("pooler_act", "tanh")),
        presence={"head.pooler": "pooler.dense.weight"},
    )


VIT_CONSTANTS = {"encoder.input.kind": "patches", "encoder.positions.kind": "learned", "init.depth_scaled": False}

VIT = Family(
    model_type="vit",
    constants=VIT_CONSTANTS,
    fields=vit_fields(n_first=1),
    rules=vit_rules,
    heads=(vit_classifier("ViTForImageClassification", "vit."), vit_bare("ViTModel")),
)

# Assran et al. 2023, without a class token: a classifier reads the mean of the states.
_CLASSES = vit_classifier("IJepaForImageClassification", "ijepa.")
I_JEPA = replace(
    VIT,
    model_type="ijepa",
    constants={**VIT_CONSTANTS, "encoder.input.class_token": False},
    fields=vit_fields(n_first=0),
    heads=(replace(_CLASSES, constants={**_CLASSES.constants, "head.pool": "mean"}), vit_bare("IJepaModel")),
)


# --- DeiT (Touvron et al. 2020) ------------------------------------------------------------------------------------


def deit_rules(config: ModelConfig) -> Sequence[Rule]:
    """The rules of a model without a teacher, and the token that learns from the teacher."""
    d = config.output.d_model
    token = reshape("embeddings.distillation_token", "encoder.embed.registers", there=[1, 1, d], here=[1, d])
    return (token, *vit_rules(config))


DEIT = Family(
    model_type="deit",
    constants={**VIT_CONSTANTS, "encoder.input.n_registers": 1},
    fields=vit_fields(n_first=2),
    rules=deit_rules,
    heads=(
        vit_classifier("DeiTForImageClassification", "deit."),
        vit_classifier("DeiTForImageClassificationWithTeacher", "deit.", teacher=True),
        vit_bare("DeiTModel"),
    ),
)


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
        reshape("embeddings.cls_token", CLASS, there=[1, 1, d], here=[d]),
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


def _fields(*, patch_size: int) -> FieldRules:
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
DINO_OLDER = {
    "attention.attention.query": "attn.q",
    "attention.attention.key": "attn.k",
    "attention.attention.value": "attn.v",
    "attention.output.dense": "attn.out",
}
DINO_NEWER = {
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
        reshape("embeddings.cls_token", CLASS, there=[1, 1, d], here=[d]),
        reshape("embeddings.mask_token", "encoder.embed.mask_token", there=[1, d], here=[d]),
        reshape("embeddings.position_embeddings", "encoder.positions.table.weight", there=[1, *table], here=table),
        *patch_rules(config, "embeddings.patch_embeddings.projection"),
        *([split("encoder.layer.{i}.mlp.weights_in.{p}", gate_and_up)] if stack.gated else []),
        *_modules({"layernorm": "final_norm", **DINO_OLDER, **DINO_NEWER, **(GATED if stack.gated else PLAIN)}),
    )


def rules_with_registers(config: ModelConfig) -> Sequence[Rule]:
    """The same, and the registers."""
    stack, reads = patches_of(config)
    return (registers(reads.n_registers, stack.d_model), *dinov2_rules(config))


DINO_CONSTANTS = {
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
    constants=DINO_CONSTANTS,
    fields=(*_fields(patch_size=14), same("use_mask_token", "encoder.input.mask_token", default=True)),
    rules=dinov2_rules,
    heads=_heads("Dinov2", "dinov2."),
)

WITH_REGISTERS = Family(
    model_type="dinov2_with_registers",
    constants={**DINO_CONSTANTS, "encoder.positions.antialias": True, "encoder.input.mask_token": True},
    fields=(*_fields(patch_size=16), same("num_register_tokens", "encoder.input.n_registers", default=4)),
    rules=rules_with_registers,
    heads=_heads("Dinov2WithRegisters", "dinov2_with_registers."),
)
