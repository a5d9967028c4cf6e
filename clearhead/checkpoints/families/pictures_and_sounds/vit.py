"""ViT and DeiT: image encoders."""

from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import bare, bias, classes, encoder_sizes, head_width, pooler_rules
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import FieldRule, Only, Values, computed, equal, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, leave_out, modules, rename, reshape
from clearhead.config import ModelConfig, PatchInput, StackConfig
from clearhead.errors import UserError


def square(size: int | list[int], _: Values | None = None) -> int:
    """The side of a square, given as one number or two equal ones."""
    sides = size if isinstance(size, list) else [size, size]
    if len(sides) != 2 or sides[0] != sides[1] or type(sides[0]) is not int or sides[0] < 1:
        raise UserError(f"expected a square, one number or twice the same, got {short(size)}")
    return sides[0]


def picture_fields(*, patch_size: int, n_first: int | None = None) -> tuple[FieldRule, ...]:
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


def vit_fields(*, n_first: int) -> tuple[FieldRule, ...]:
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
        reshape("embeddings.cls_token", "encoder.embed.class_token", there=[1, 1, d], here=[d]),
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
