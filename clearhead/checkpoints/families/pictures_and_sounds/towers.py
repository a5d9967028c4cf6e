"""Models of texts and of pictures that are compared: CLIP and SigLIP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from clearhead.checkpoints.families.family import COMMON, Family, HeadMap
from clearhead.checkpoints.families.pictures_and_sounds.vit import patch_rules, picture_fields
from clearhead.checkpoints.families.shared import head_width, sizes
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import ANOTHER, FieldMap, FieldRules, Only, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, modules, rename, renames, reshape, split
from clearhead.config import ModelConfig
from clearhead.errors import refuse

# --- CLIP (Radford et al. 2021) ------------------------------------------------------------------------------------


def tower_fields(stack: str, **defaults: JsonValue) -> FieldRules:
    """The fields that both towers have."""
    return (
        *sizes(stack, num_hidden_layers=12, attention_dropout=0.0, **defaults),
        head_width(),
        # The first numbers of weights, here and of what compares the towers, and fields of the other tower.
        ignored("initializer_factor", "logit_scale_init_value"),
        ignored("image_size", "patch_size", "num_channels", "vision_use_head")
        if "vocab_size" in defaults
        else ignored("vocab_size", "max_position_embeddings", "projection_size"),
    )


TEXT = {
    "embeddings.token_embedding": "embed.tokens",
    "embeddings.position_embedding": "positions.table",
    "final_layer_norm": "final_norm",
}


def tower_rules(stack: str, names: dict[str, str]) -> tuple[Rule, ...]:
    """The blocks of a tower, and other modules."""
    block = {
        "self_attn.q_proj": "attn.q",
        "self_attn.k_proj": "attn.k",
        "self_attn.v_proj": "attn.v",
        "self_attn.out_proj": "attn.out",
        "layer_norm1": "attn_norm",
        "layer_norm2": "ffn_norm",
        "mlp.fc1": "ffn.up",
        "mlp.fc2": "ffn.down",
    }
    return *modules(stack, "encoder.layers.{i}", names | block), ignore("embeddings.position_ids")


def clip_image_rules(config: ModelConfig) -> Sequence[Rule]:
    """The image encoder. Its last norm is applied to the pooled state only."""
    return (
        rename("embeddings.class_embedding", "encoder.embed.class_token"),
        *patch_rules(config, "embeddings.patch_embedding"),
        *tower_rules("encoder", {"embeddings.position_embedding": "positions.table", "pre_layrnorm": "embed.norm"}),
        rename("post_layernorm.{p}", "head.norm.{p}"),
    )


def tower_heads(name: str, prefix: str, projection: str, *, norm: bool, pool: str) -> tuple[HeadMap, HeadMap]:
    """One vector from a state, with a projection and without."""
    constants = {"head.kind": "vector", "head.norm": norm, "head.pool": pool}
    width = same("projection_dim", "head.width", default=512)
    return (
        HeadMap(f"{name}WithProjection", constants, fields=(width,), prefix=prefix, names={projection: "output"}),
        HeadMap(name, constants, fields=(ignored("projection_dim"),), prefix=prefix),
    )


CLIP_TEXT = Family(
    model_type="clip_text_model",
    constants={"decoder.positions.kind": "learned", "init.depth_scaled": False},
    fields=tower_fields(
        "decoder",
        vocab_size=49_408,
        max_position_embeddings=77,
        hidden_size=512,
        intermediate_size=2048,
        num_attention_heads=8,
        layer_norm_eps=1e-5,
        hidden_act="quick_gelu",
        initializer_range=0.02,
    ),
    rules=lambda _: tower_rules("decoder", TEXT),
    heads=tower_heads("CLIPTextModel", "text_model.", "text_projection", norm=False, pool="last"),
)
BASE: dict[str, JsonValue] = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}
CLIP_IMAGE = Family(
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
        *picture_fields(patch_size=32, n_first=1),
        *tower_fields("encoder", **BASE, layer_norm_eps=1e-5, hidden_act="quick_gelu", initializer_range=0.02),
    ),
    rules=clip_image_rules,
    heads=tower_heads("CLIPVisionModel", "vision_model.", "visual_projection", norm=True, pool="first"),
)


# --- SigLIP (Zhai et al. 2023) -------------------------------------------------------------------------------------


def siglip_image_rules(config: ModelConfig) -> Sequence[Rule]:
    """The image encoder, and the learned query that reads its states."""
    d = config.output.d_model
    names = {
        "attention.out_proj": "attn.out",
        "layernorm": "ffn_norm",
        "mlp.fc1": "ffn.up",
        "mlp.fc2": "ffn.down",
    }
    return (
        *patch_rules(config, "embeddings.patch_embedding"),
        *tower_rules("encoder", {"embeddings.position_embedding": "positions.table", "post_layernorm": "final_norm"}),
        reshape("head.probe", "head.query.weight", there=[1, 1, d], here=[1, d]),
        split("head.attention.in_proj_{p}", [f"head.attn.{side}.{{p}}" for side in "qkv"]),
        *renames("head", "head", names),
    )


SIGLIP_BASE: dict[str, JsonValue] = {**BASE, "layer_norm_eps": 1e-6, "hidden_act": "gelu_pytorch_tanh"}
UNREAD = (Only("vision_use_head", True), ignored("projection_dim"))
SIGLIP_TEXT = Family(
    model_type="siglip_text_model",
    constants={"encoder.positions.kind": "learned", "init.depth_scaled": False},
    fields=(
        *tower_fields("encoder", vocab_size=32_000, max_position_embeddings=64, **SIGLIP_BASE),
        computed(
            "projection_size",
            "head.width",
            read=lambda width, values: values["hidden_size"] if width is None else width,
            default=None,
            like=64,
        ),
    ),
    rules=lambda _: (*tower_rules("encoder", TEXT), rename("head.{p}", "head.output.{p}")),
    heads=(
        HeadMap(
            "SiglipTextModel",
            {"head.kind": "vector", "head.pool": "last", "head.bias": True, "head.fills": True},
            prefix="text_model.",
        ),
    ),
)

SIGLIP_IMAGE = Family(
    model_type="siglip_vision_model",
    constants={
        "encoder.input.kind": "patches",
        "encoder.input.class_token": False,
        "encoder.positions.kind": "learned",
        "init.depth_scaled": False,
    },
    fields=(
        *picture_fields(patch_size=16, n_first=0),
        *tower_fields("encoder", **SIGLIP_BASE),
        *UNREAD,
    ),
    rules=siglip_image_rules,
    heads=(HeadMap("SiglipVisionModel", {"head.kind": "vector", "head.pool": "attention"}, prefix="vision_model."),),
)


# --- both towers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Towers:
    """A model of two towers in the reference library."""

    model_type: str
    architecture: str
    text: Family
    image: Family
    has_bias: bool
    """Whether a number is added to every logit."""
    template: str
    """The sentence about a label, as the pipeline of the reference library writes it."""
    shared: Mapping[str, Any] = field(default_factory=dict)
    """Fields at the top that count for both towers, with their defaults."""

    @property
    def families(self) -> tuple[Family, Family]:
        """The families of the two towers: of texts and of pictures."""
        return self.text, self.image

    @property
    def rules(self) -> tuple[Rule, ...]:
        """What compares the vectors: one number is a list of one in SigLIP."""
        if not self.has_bias:
            return (rename("logit_scale", "logit_scale"),)
        return tuple(reshape(name, name, there=[1], here=[]) for name in ("logit_scale", "logit_bias"))

    def check(self, document: Mapping[str, Any], *, where: str) -> None:
        """Raises UserError for another class than the two towers together, and for a field that is not supported."""
        names = document.get("architectures") or [self.architecture]
        if names != [self.architecture]:
            raise refuse(f"{where}:architectures", self.architecture, short(names), "try a folder of that class")
        for part in ("text_config", "vision_config", "text_config_dict", "vision_config_dict"):
            if not isinstance(document.get(part) or {}, Mapping):
                raise refuse(f"{where}:{part}", "a table", short(document[part]), ANOTHER)
        own = [same(name, default=default) for name, default in self.shared.items()]
        numbers = ignored("logit_scale_init_value", "initializer_factor", "initializer_range")
        rest = {name: said for name, said in document.items() if not name.startswith(("text_config", "vision_config"))}
        FieldMap((*own, numbers, *COMMON)).values(rest, where=where)

    def towers(self, document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The configs of the two towers: of texts and of pictures."""
        shared = {name: document.get(name, default) for name, default in self.shared.items()}
        both = zip(self.families, ("text_config", "vision_config"), strict=True)
        text, image = (
            {
                **_part(document, name),
                **shared,
                "model_type": family.model_type,
                "architectures": [family.heads[0].architecture],
            }
            for family, name in both
        )
        return text, image

    def written(self, text: ModelConfig, image: ModelConfig) -> dict[str, Any] | None:
        """The config of two towers; None if they are none of this kind."""
        said, shown = self.text.write(text), self.image.write(image)
        if said is None or shown is None:
            return None
        (text_document, text_head), (image_document, image_head) = said, shown
        if (text_head, image_head) != (self.text.heads[0], self.image.heads[0]):
            return None
        shared = {name: text_document[name] for name in self.shared}
        top = {"architectures": [self.architecture], "model_type": self.model_type, **shared}
        return {**top, "text_config": text_document, "vision_config": image_document}


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The config of one tower. An older field, where it is there, takes precedence with all its defaults."""
    older = document.get(f"{name}_dict")
    return (document.get(name) or {}) if older is None else older


PHOTO = "This is a photo of {}."
CLIP = Towers("clip", "CLIPModel", CLIP_TEXT, CLIP_IMAGE, False, PHOTO, {"projection_dim": 512})
SIGLIP = Towers("siglip", "SiglipModel", SIGLIP_TEXT, SIGLIP_IMAGE, True, PHOTO)
TOWERS = (CLIP, SIGLIP)


def towers_of(document: Mapping[str, Any]) -> Towers | None:
    """The model of two towers that a config names; None if it names none."""
    return next((one for one in TOWERS if one.model_type == document.get("model_type")), None)
