"""ViT and DeiT: image encoders."""

from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import encoder_sizes, head_width, labels, pooler_rules, problem_type
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import FieldRule, Only, Values, computed, ignored, implied, inherited, same
from clearhead.checkpoints.weights.mapping import Rule, leave_out, rename, reshape
from clearhead.config import ModelConfig, PatchInput
from clearhead.errors import UserError


def square(size: int | list[int], _: Values | None = None) -> int:
    """The side of a square, given as one number or two equal ones."""
    sides = size if isinstance(size, list) else [size, size]
    if len(sides) != 2 or sides[0] != sides[1] or type(sides[0]) is not int or sides[0] < 1:
        raise UserError(f"expected a square, one number or twice the same, got {short(size)}")
    return sides[0]


def _written_side(_: Any, ours: Values) -> int:
    return ours["encoder"]["input"]["image_size"]


def picture_fields(*, patch_size: int) -> tuple[FieldRule, ...]:
    """The sizes of pictures and patches."""
    return (
        computed("image_size", "encoder.input.image_size", read=square, default=224),
        computed("patch_size", "encoder.input.patch_size", read=square, default=patch_size),
        same("num_channels", "encoder.input.n_channels", default=3),
    )


def vit_fields(*, n_first: int) -> tuple[FieldRule, ...]:
    """The whole map, where so many cells before the patches have positions."""

    def length(image: int | list[int], values: Values) -> int:
        return (square(image) // square(values["patch_size"])) ** 2 + n_first

    return (
        *picture_fields(patch_size=16),
        computed("image_size", "encoder.positions.max_length", read=length, write=_written_side, default=224),
        *encoder_sizes(dropout=0.0),
        head_width(),
        inherited("qkv_bias", "encoder.qkv_bias", of="bias", default=True),
        # encoder_stride belongs to a pixel decoder, and the pooler to the bare model only.
        ignored("encoder_stride", "pooler_output_size", "pooler_act"),
    )


def patch_rules(config: ModelConfig, there: str) -> Sequence[Rule]:
    """The convolution over patches, whose kernels become a matrix. `there` is its name."""
    stack = config.encoder
    assert stack is not None
    assert isinstance(stack.input, PatchInput)
    d, side, channels = stack.d_model, stack.input.patch_size, stack.input.n_channels
    kernels, here = [d, channels, side, side], "encoder.embed.patches"
    bias = (rename(f"{there}.bias", f"{here}.bias"),) if stack.input.bias else ()
    return reshape(f"{there}.weight", f"{here}.weight", there=kernels, here=[d, channels * side * side]), *bias


def vit_rules(config: ModelConfig) -> Sequence[Rule]:
    """Turns the patch convolution's kernels into a matrix, and renames from the library's older and newer names."""
    stack = config.encoder
    assert stack is not None
    assert isinstance(stack.input, PatchInput)
    d, table = stack.d_model, [stack.input.length, stack.d_model]
    older, newer, ours = "encoder.layer.{i}", "layers.{i}", "encoder.blocks.{i}"
    layer = (
        ("attention.attention.query", "attention.q_proj", "attn.q"),
        ("attention.attention.key", "attention.k_proj", "attn.k"),
        ("attention.attention.value", "attention.v_proj", "attn.v"),
        ("attention.output.dense", "attention.o_proj", "attn.out"),
        ("intermediate.dense", "mlp.fc1", "ffn.up"),
        ("output.dense", "mlp.fc2", "ffn.down"),
        ("layernorm_before", "layernorm_before", "attn_norm"),
        ("layernorm_after", "layernorm_after", "ffn_norm"),
    )
    return (
        reshape("embeddings.cls_token", "encoder.embed.class_token", there=[1, 1, d], here=[d]),
        reshape("embeddings.position_embeddings", "encoder.positions.table.weight", there=[1, *table], here=table),
        *patch_rules(config, "embeddings.patch_embeddings.projection"),
        *(rename(f"{older}.{theirs}.{{p}}", f"{ours}.{here}.{{p}}") for theirs, _, here in layer),
        *(rename(f"{newer}.{theirs}.{{p}}", f"{ours}.{here}.{{p}}") for _, theirs, here in layer),
        rename("layernorm.{p}", "encoder.final_norm.{p}"),
        leave_out("embeddings.mask_token", because="no patch is masked here"),
    )


POOLER_SIZE = implied(
    "pooler_output_size",
    lambda theirs: theirs["hidden_size"],
    write=lambda ours: ours["encoder"]["d_model"],
    what="which is hidden_size",
)


def vit_classifier(architecture: str, prefix: str) -> HeadMap:
    """The head that reads the class token's state."""
    return HeadMap(
        architecture,
        {"head.kind": "classification"},
        lambda _: (rename("classifier.{p}", "head.output.{p}"), unread_pooler(prefix)),
        (*labels(), problem_type()),
        prefix=prefix,
    )


def unread_pooler(prefix: str) -> Rule:
    """The pooler of a checkpoint whose head does not use it."""
    because = "this head reads the class token's state, not the pooled one"
    return leave_out(f"{prefix}pooler.dense.{{p}}", because=because)


def vit_bare(architecture: str) -> HeadMap:
    """The states, and a pooler if its tensors are there."""
    return HeadMap(
        architecture,
        {"head.kind": "none"},
        pooler_rules,
        (POOLER_SIZE, Only("pooler_act", "tanh")),
        presence={"head.pooler": "pooler.dense.weight"},
    )


VIT_CONSTANTS = {
    "encoder.input.kind": "patches",
    "encoder.positions.kind": "learned",
    "init.depth_scaled": False,
}

VIT = Family(
    model_type="vit",
    constants=VIT_CONSTANTS,
    fields=vit_fields(n_first=1),
    rules=vit_rules,
    heads=(vit_classifier("ViTForImageClassification", "vit."), vit_bare("ViTModel")),
)


# --- DeiT (Touvron et al. 2020) ------------------------------------------------------------------------------------

PREFIX = "deit."


def deit_rules(config: ModelConfig) -> Sequence[Rule]:
    """The rules of a model without a teacher, and the token that learns from the teacher."""
    assert config.encoder is not None
    d = config.encoder.d_model
    token = reshape("embeddings.distillation_token", "encoder.embed.registers", there=[1, 1, d], here=[1, d])
    return (token, *vit_rules(config))


HEADS = (
    vit_classifier("DeiTForImageClassification", PREFIX),
    HeadMap(
        "DeiTForImageClassificationWithTeacher",
        {"head.kind": "classification", "head.distilled": True},
        lambda _: (
            rename("cls_classifier.{p}", "head.output.{p}"),
            rename("distillation_classifier.{p}", "head.distilled.{p}"),
            unread_pooler(PREFIX),
        ),
        (*labels(), problem_type()),
        prefix=PREFIX,
    ),
    vit_bare("DeiTModel"),
)

DEIT = Family(
    model_type="deit",
    constants={**VIT_CONSTANTS, "encoder.input.n_registers": 1},
    fields=vit_fields(n_first=2),
    rules=deit_rules,
    heads=HEADS,
)
