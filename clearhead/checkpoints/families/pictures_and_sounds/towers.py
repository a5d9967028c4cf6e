"""Models of texts and pictures: CLIP and SigLIP, and the text models inside models that read pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clearhead.checkpoints.families.decoders.llama import LLAMA, MISTRAL, QWEN2
from clearhead.checkpoints.families.decoders.two_kinds import GEMMA3
from clearhead.checkpoints.families.family import COMMON, Family, HeadMap, prefixed
from clearhead.checkpoints.families.pictures_and_sounds.vit import patch_rules, picture_fields, square
from clearhead.checkpoints.families.shared import ACTIVATIONS, head_width
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import (
    ANOTHER,
    FieldMap,
    FieldRule,
    Only,
    Values,
    computed,
    ignored,
    named,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, ignore, leave_out, rename, renames, reshape, split
from clearhead.config import ModelConfig
from clearhead.errors import UserError, refuse

# --- CLIP (Radford et al. 2021) ------------------------------------------------------------------------------------


def tower_sizes(stack: str, d_model: int, d_ff: int, n_heads: int, *, eps: float, act: str) -> tuple[FieldRule, ...]:
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
        *renames(
            theirs,
            ours,
            {
                "self_attn.out_proj": "attn.out",
                "layer_norm1": "attn_norm",
                "layer_norm2": "ffn_norm",
                "mlp.fc1": "ffn.up",
                "mlp.fc2": "ffn.down",
            },
        ),
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


def clip_image_rules(config: ModelConfig) -> Sequence[Rule]:
    """The image encoder. Its last norm is applied to the pooled state only."""
    return (
        rename("embeddings.class_embedding", "encoder.embed.class_token"),
        *patch_rules(config, "embeddings.patch_embedding"),
        rename("embeddings.position_embedding.weight", "encoder.positions.table.weight"),
        rename("pre_layrnorm.{p}", "encoder.embed.norm.{p}"),
        *layer_rules("encoder"),
        rename("post_layernorm.{p}", "head.norm.{p}"),
    )


def tower_heads(
    bare: str, projected: str, prefix: str, theirs: str, *, norm: bool, pool: str
) -> tuple[HeadMap, HeadMap]:
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


CLIP_TEXT = Family(
    model_type="clip_text_model",
    constants={
        "decoder.input.kind": "tokens",
        "decoder.positions.kind": "learned",
        "init.depth_scaled": False,
    },
    fields=(
        *text_fields("decoder", 49_408, 77),
        *tower_sizes("decoder", 512, 2048, 8, eps=1e-5, act="quick_gelu"),
        same("initializer_range", "init.std", default=0.02),
    ),
    rules=lambda _: text_rules("decoder"),
    heads=tower_heads(
        "CLIPTextModel", "CLIPTextModelWithProjection", "text_model.", "text_projection", norm=False, pool="last"
    ),
)

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
        *image_fields(patch_size=32, n_first=1),
        *tower_sizes("encoder", 768, 3072, 12, eps=1e-5, act="quick_gelu"),
        same("initializer_range", "init.std", default=0.02),
    ),
    rules=clip_image_rules,
    heads=tower_heads(
        "CLIPVisionModel",
        "CLIPVisionModelWithProjection",
        "vision_model.",
        "visual_projection",
        norm=True,
        pool="first",
    ),
)


# --- SigLIP (Zhai et al. 2023) -------------------------------------------------------------------------------------


def _width(width: int | None, values: Values) -> int:
    return values["hidden_size"] if width is None else width


def siglip_image_rules(config: ModelConfig) -> Sequence[Rule]:
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

SIGLIP_TEXT = Family(
    model_type="siglip_text_model",
    constants={
        "encoder.input.kind": "tokens",
        "encoder.positions.kind": "learned",
        "init.depth_scaled": False,
    },
    fields=(
        *text_fields("encoder", 32_000, 64),
        *tower_sizes("encoder", 768, 3072, 12, eps=EPS, act=ACT),
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

SIGLIP_IMAGE = Family(
    model_type="siglip_vision_model",
    constants={
        "encoder.input.kind": "patches",
        "encoder.input.class_token": False,
        "encoder.positions.kind": "learned",
        "init.depth_scaled": False,
    },
    fields=(
        *image_fields(patch_size=16, n_first=0),
        *tower_sizes("encoder", 768, 3072, 12, eps=EPS, act=ACT),
        Only("vision_use_head", True),
        ignored("projection_dim"),
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
    shared: tuple[str, ...] = ()
    """Fields at the top that count for both towers."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The values of these fields where a config leaves them out."""

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
        own = [same(name, default=self.defaults[name]) for name in self.shared]
        numbers = ignored("logit_scale_init_value", "initializer_factor", "initializer_range")
        rest = {name: said for name, said in document.items() if not name.startswith(("text_config", "vision_config"))}
        FieldMap((*own, numbers, *COMMON)).values(rest, where=where)

    def towers(self, document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The configs of the two towers: of texts and of pictures."""
        shared = {name: document.get(name, self.defaults[name]) for name in self.shared}
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


CLIP = Towers(
    "clip",
    "CLIPModel",
    CLIP_TEXT,
    CLIP_IMAGE,
    has_bias=False,
    template="This is a photo of {}.",
    shared=("projection_dim",),
    defaults={"projection_dim": 512},
)
SIGLIP = Towers("siglip", "SiglipModel", SIGLIP_TEXT, SIGLIP_IMAGE, has_bias=True, template="This is a photo of {}.")
TOWERS = (CLIP, SIGLIP)


def towers_of(document: Mapping[str, Any]) -> Towers | None:
    """The model of two towers that a config names; None if it names none."""
    return next((one for one in TOWERS if one.model_type == document.get("model_type")), None)


# --- text models inside models of pictures -------------------------------------------------------------------------

PICTURES = "what reads pictures"
LETTERS = "abcdefghijkl"
"""Fields for the parts of the longest name of a tensor that is left out."""
SHARED = ("is_causal",)
"""Fields of the whole that count for the text model."""
TOP, OLDER = "model.language_model.", "language_model.model."
"""Prefixes of the text model, today's and the older one."""


def _beside(*names: str) -> Rule:
    """The tensors of these modules, under today's names and the older ones."""
    deep = ["".join(f".{{{letter}}}" for letter in LETTERS[:n]) for n in range(len(LETTERS))]
    tensors = (f"{top}{name}{rest}" for top in ("", "model.") for name in names for rest in deep)
    return leave_out(*tensors, because=PICTURES)


def text_part(
    family: Family,
    model_type: str,
    architecture: str,
    beside: Sequence[str],
    *,
    tied: bool = False,
    either: bool = False,
) -> Family:
    """The family of a text model as the part of a model of this class, which has the modules `beside` it.

    `tied` is the default for whether the class ties its output; with `either`, the text model's own word counts too.
    """
    head = family.heads[0]

    def flattened(document: dict[str, Any]) -> dict[str, Any]:
        text = document.get("text_config")
        if not isinstance(text, Mapping):
            raise UserError(f"text_config: expected a table, got {short(text)}; {ANOTHER}")
        ties = document.get("tie_word_embeddings", tied) or (either and text.get("tie_word_embeddings", False))
        whole = {name: document[name] for name in SHARED if document.get(name) is not None}
        return family.modernize({**text, **whole, "architectures": [architecture], "tie_word_embeddings": ties})

    def rules(config: ModelConfig) -> Sequence[Rule]:
        own = family.rules(config)
        output = head.rules(config)
        places = [prefixed(rule, top) for rule in own for top in (TOP, OLDER)]
        return (_beside(*beside), *places, *(prefixed(rule, "language_model.") for rule in output))

    return replace(
        family,
        model_type=model_type,
        rules=rules,
        heads=(replace(head, architecture=architecture, prefix=""),),
        modernize=flattened,
        only_if={"text_config.model_type": family.model_type},
        read_only=True,
        without=PICTURES,
    )


TOWER = ("vision_tower", "multi_modal_projector")
LINES = (*TOWER, "image_newline")
IN_LLAVA = (LLAMA, MISTRAL, QWEN2)
GEMMA_3 = text_part(GEMMA3, "gemma3", "Gemma3ForConditionalGeneration", TOWER, tied=True)
LLAVA = tuple(text_part(one, "llava", "LlavaForConditionalGeneration", TOWER, either=True) for one in IN_LLAVA)
LLAVA_NEXT = tuple(text_part(one, "llava_next", "LlavaNextForConditionalGeneration", LINES) for one in IN_LLAVA)
LLAVA_ONEVISION = text_part(QWEN2, "llava_onevision", "LlavaOnevisionForConditionalGeneration", LINES, either=True)
