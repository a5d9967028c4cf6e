"""The two towers of Zhai et al. 2023, each by itself: encoders of texts and of pictures."""

from collections.abc import Sequence

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.pictures_and_sounds.clip import (
    image_fields,
    layer_rules,
    sizes,
    text_fields,
    text_rules,
)
from clearhead.checkpoints.families.pictures_and_sounds.vit import patch_rules
from clearhead.checkpoints.weights.fields import Only, Values, computed, ignored
from clearhead.checkpoints.weights.mapping import Rule, rename, reshape, split
from clearhead.config import ModelConfig


def _width(width: int | None, values: Values) -> int:
    return values["hidden_size"] if width is None else width


def image_rules(config: ModelConfig) -> Sequence[Rule]:
    """The image encoder, and the learned query that reads its states."""
    assert config.encoder is not None
    d = config.encoder.d_model
    sides = [f"head.attn.{side}.{{p}}" for side in ("q", "k", "v")]
    return (
        *patch_rules(config, "embeddings.patch_embedding"),
        rename("embeddings.position_embedding.weight", "encoder.positions.table.weight"),
        *layer_rules("encoder"),
        rename("post_layernorm.{p}", "encoder.final_norm.{p}"),
        reshape("head.probe", "head.query.weight", there=[1, 1, d], here=[1, d]),
        split("head.attention.in_proj_{p}", sides),
        rename("head.attention.out_proj.{p}", "head.attn.out.{p}"),
        rename("head.layernorm.{p}", "head.ffn_norm.{p}"),
        rename("head.mlp.fc1.{p}", "head.ffn.up.{p}"),
        rename("head.mlp.fc2.{p}", "head.ffn.down.{p}"),
    )


ACT, EPS = "gelu_pytorch_tanh", 1e-6

TEXT = Family(
    model_type="siglip_text_model",
    constants={
        "encoder.input.kind": "tokens",
        "encoder.positions.kind": "learned",
        "init.depth_scaled": False,
    },
    fields=(
        *text_fields("encoder", 32_000, 64),
        *sizes("encoder", 768, 3072, 12, eps=EPS, act=ACT),
        computed("projection_size", "head.width", read=_width, default=None, like=64),
    ),
    rules=lambda _: (*text_rules("encoder"), rename("head.{p}", "head.output.{p}")),
    heads=(
        HeadMap(
            "SiglipTextModel",
            {"head.kind": "vector", "head.pool": "last", "head.bias": True, "head.fills": True},
            prefix="text_model.",
        ),
    ),
)

IMAGE = Family(
    model_type="siglip_vision_model",
    constants={
        "encoder.input.kind": "patches",
        "encoder.input.class_token": False,
        "encoder.positions.kind": "learned",
        "init.depth_scaled": False,
    },
    fields=(
        *image_fields(patch_size=16, n_first=0),
        *sizes("encoder", 768, 3072, 12, eps=EPS, act=ACT),
        Only("vision_use_head", True),
        ignored("projection_dim"),
    ),
    rules=image_rules,
    heads=(HeadMap("SiglipVisionModel", {"head.kind": "vector", "head.pool": "attention"}, prefix="vision_model."),),
)
