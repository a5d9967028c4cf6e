"""The two towers of Radford et al. 2021, each by itself: a causal stack for texts, and an image encoder."""

from collections.abc import Sequence

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.pictures_and_sounds.vit import patch_rules, picture_fields, square
from clearhead.checkpoints.families.shared import ACTIVATIONS, head_width
from clearhead.checkpoints.weights.fields import FieldRule, Values, computed, ignored, named, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, rename
from clearhead.config import ModelConfig


def sizes(stack: str, d_model: int, d_ff: int, n_heads: int, *, eps: float, act: str) -> tuple[FieldRule, ...]:
    """The fields that both towers have."""
    return (
        same("hidden_size", f"{stack}.d_model", default=d_model),
        same("intermediate_size", f"{stack}.d_ff", default=d_ff),
        same("num_hidden_layers", f"{stack}.n_layers", default=12),
        same("num_attention_heads", f"{stack}.n_heads", default=n_heads),
        named("hidden_act", f"{stack}.activation", names=ACTIVATIONS, default=act),
        same("layer_norm_eps", f"{stack}.norm_eps", default=eps),
        same("attention_dropout", f"{stack}.attn_dropout", default=0.0),
        head_width(),
        # The first numbers of weights, here and of what compares the towers.
        ignored("initializer_factor", "logit_scale_init_value"),
    )


def text_fields(stack: str, vocab_size: int, length: int) -> tuple[FieldRule, ...]:
    """The tables of the tower that reads texts."""
    return (
        same("vocab_size", f"{stack}.input.vocab_size", default=vocab_size),
        same("max_position_embeddings", f"{stack}.positions.max_length", default=length),
        # Of the other tower.
        ignored("image_size", "patch_size", "num_channels", "vision_use_head"),
    )


def image_fields(*, patch_size: int, n_first: int) -> tuple[FieldRule, ...]:
    """The sizes of pictures, and of the table of positions, which follows from them."""

    def length(image: int | list[int], values: Values) -> int:
        return (square(image) // square(values["patch_size"])) ** 2 + n_first

    def written(_: int, ours: Values) -> int:
        return ours["encoder"]["input"]["image_size"]

    return (
        *picture_fields(patch_size=patch_size),
        computed("image_size", "encoder.positions.max_length", read=length, write=written, default=224),
        # Of the other tower.
        ignored("vocab_size", "max_position_embeddings", "projection_size"),
    )


def layer_rules(stack: str) -> tuple[Rule, ...]:
    """The blocks of a tower."""
    theirs, ours = "encoder.layers.{i}", f"{stack}.blocks.{{i}}"
    return (
        *(rename(f"{theirs}.self_attn.{side}_proj.{{p}}", f"{ours}.attn.{side}.{{p}}") for side in ("q", "k", "v")),
        rename(f"{theirs}.self_attn.out_proj.{{p}}", f"{ours}.attn.out.{{p}}"),
        rename(f"{theirs}.layer_norm1.{{p}}", f"{ours}.attn_norm.{{p}}"),
        rename(f"{theirs}.layer_norm2.{{p}}", f"{ours}.ffn_norm.{{p}}"),
        rename(f"{theirs}.mlp.fc1.{{p}}", f"{ours}.ffn.up.{{p}}"),
        rename(f"{theirs}.mlp.fc2.{{p}}", f"{ours}.ffn.down.{{p}}"),
        ignore("embeddings.position_ids"),
    )


def text_rules(stack: str) -> tuple[Rule, ...]:
    """The tower that reads texts."""
    return (
        rename("embeddings.token_embedding.weight", f"{stack}.embed.tokens.weight"),
        rename("embeddings.position_embedding.weight", f"{stack}.positions.table.weight"),
        *layer_rules(stack),
        rename("final_layer_norm.{p}", f"{stack}.final_norm.{{p}}"),
    )


def image_rules(config: ModelConfig) -> Sequence[Rule]:
    """The image encoder. Its last norm is applied to the pooled state only."""
    return (
        rename("embeddings.class_embedding", "encoder.embed.class_token"),
        *patch_rules(config, "embeddings.patch_embedding"),
        rename("embeddings.position_embedding.weight", "encoder.positions.table.weight"),
        rename("pre_layrnorm.{p}", "encoder.embed.norm.{p}"),
        *layer_rules("encoder"),
        rename("post_layernorm.{p}", "head.norm.{p}"),
    )


def heads(bare: str, projected: str, prefix: str, theirs: str, *, norm: bool, pool: str) -> tuple[HeadMap, HeadMap]:
    """One vector of a state, as it is and through a matrix, whose name is `theirs`."""
    constants = {"head.kind": "vector", "head.norm": norm, "head.pool": pool}
    return (
        HeadMap(
            projected,
            constants,
            lambda _: (rename(f"{theirs}.weight", "head.output.weight"),),
            (same("projection_dim", "head.width", default=512),),
            prefix=prefix,
        ),
        HeadMap(bare, constants, fields=(ignored("projection_dim"),), prefix=prefix),
    )


TEXT = Family(
    model_type="clip_text_model",
    constants={
        "decoder.input.kind": "tokens",
        "decoder.positions.kind": "learned",
        "init.depth_scaled": False,
    },
    fields=(
        *text_fields("decoder", 49_408, 77),
        *sizes("decoder", 512, 2048, 8, eps=1e-5, act="quick_gelu"),
        same("initializer_range", "init.std", default=0.02),
    ),
    rules=lambda _: text_rules("decoder"),
    heads=heads(
        "CLIPTextModel", "CLIPTextModelWithProjection", "text_model.", "text_projection", norm=False, pool="last"
    ),
)

IMAGE = Family(
    model_type="clip_vision_model",
    constants={
        "encoder.input.kind": "patches",
        "encoder.input.bias": False,
        "encoder.input.norm": True,
        "encoder.positions.kind": "learned",
        "encoder.final_norm": False,
        "init.depth_scaled": False,
    },
    fields=(
        *image_fields(patch_size=32, n_first=1),
        *sizes("encoder", 768, 3072, 12, eps=1e-5, act="quick_gelu"),
        same("initializer_range", "init.std", default=0.02),
    ),
    rules=image_rules,
    heads=heads(
        "CLIPVisionModel",
        "CLIPVisionModelWithProjection",
        "vision_model.",
        "visual_projection",
        norm=True,
        pool="first",
    ),
)
