"""Models that read pictures within a text: a tower, a projector and a text model, each a table."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from clearhead.checkpoints.families import variants
from clearhead.checkpoints.families.decoders.deltas import QWEN3_5, QWEN3_5_MOE
from clearhead.checkpoints.families.decoders.llama import LLAMA, MISTRAL, QWEN2
from clearhead.checkpoints.families.decoders.two_kinds import GEMMA, GEMMA2, GEMMA3
from clearhead.checkpoints.families.family import Family, prefixed
from clearhead.checkpoints.families.pictures_and_sounds.towers import CLIP_IMAGE, SIGLIP_IMAGE, UNREAD, tower_fields
from clearhead.checkpoints.families.pictures_and_sounds.vit import picture_fields
from clearhead.checkpoints.families.shared import ACTIVATIONS, PICTURES, beside_it
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import (
    ANOTHER,
    REQUIRED,
    Alias,
    Field,
    FieldRules,
    Only,
    Values,
    computed,
    ignored,
    named,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, derive, leave_out, rename, transpose
from clearhead.config import ModelConfig, NoHead, StackConfig
from clearhead.errors import refuse
from clearhead.json_text import JsonObject

if TYPE_CHECKING:
    from torch import Tensor

# --- the tower and the projector -----------------------------------------------------------------------------------

TOP, OLDER = "model.language_model.", "language_model.model."
"""Prefixes of the text model, today's and the older one."""
UNSEEN = "no vector of a picture depends on it"
MOST_LEFT_OUT = 32
"""Most layers of a tower behind the one that is read."""


@dataclass(frozen=True)
class Sight:
    """What a class has beside its text model: a tower, a projector, and fields for both."""

    image: Family
    fields: FieldRules
    projector: tuple[Rule, ...]
    """The weights of the projector, by names within it on both sides."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, str] = ("vision_tower", "multi_modal_projector")
    """The modules of the tower and the projector."""
    chosen: bool = False
    """Whether a config chooses between towers."""
    unread: tuple[str, ...] = ()
    """Fields of the text model that have no effect within this class."""
    tops: tuple[tuple[str, ...], ...] = ((OLDER, TOP), ("", "model."), ("vision_model.", ""))
    """Prefixes of the text model, of the projector and the tower, and within the tower; the first is written."""

    def rules(self, config: ModelConfig) -> Iterator[Rule]:
        """The weights of both under their names of today and the older ones."""
        assert config.pictures is not None
        tower, (there, projector) = config.pictures.tower, self.names
        beyond = range(tower.n_layers, tower.n_layers + MOST_LEFT_OUT)
        own = self.image.rules(ModelConfig(encoder=tower, head=NoHead()))
        for top in self.tops[1]:
            for rule in self.projector:
                within = prefixed(rule, f"{top}{projector}.")
                yield replace(within, ours=tuple(f"pictures.projector.{name}" for name in rule.ours))
            for inner in self.tops[2]:
                at = f"{top}{there}.{inner}"
                unread = (f"{at}encoder.layers.{i}.{{a}}{rest}" for i in beyond for rest in (".{b}", ".{b}.{c}"))
                yield leave_out(*unread, because=UNSEEN)
                if not tower.has_final_norm and (top, inner) == (self.tops[1][0], self.tops[2][0]):
                    first = ((0.0, "bias"), (1.0, "weight"))  # Which its class has, and no vector depends on.
                    yield from (derive(f"{at}post_layernorm.{p}", partial(_full, tower.d_model, x)) for x, p in first)
                yield from (_of_tower(prefixed(rule, at), tower) for rule in own)


def _full(n: int, value: float) -> "Tensor":
    import torch

    return torch.full((n,), value)


def _of_tower(rule: Rule, tower: StackConfig) -> Rule:
    """The rule of an image encoder for a tower, which has no head, and maybe no last norm."""
    ours = rule.ours[0] if rule.ours else ""
    if ours.startswith("head.") or (ours.startswith("encoder.final_norm") and not tower.has_final_norm):
        return leave_out(*rule.theirs, because=UNSEEN)
    return replace(rule, ours=tuple(f"pictures.tower.{name.removeprefix('encoder.')}" for name in rule.ours))


def tower_of(image: Family, vision: Any, *, layer: int | None = None) -> dict[str, Any]:
    """The stack of a tower up to hidden state `layer`, which has no last norm, or to the end."""
    own = {**vision, "architectures": [image.heads[-1].architecture], "vision_use_head": True}
    config, _ = image.read(own, where="vision_config")
    assert config.encoder is not None
    if layer is None:
        return config.encoder.model_dump(mode="json")
    n = config.encoder.n_layers
    depth = layer if layer >= 0 else n + 1 + layer
    if not 0 < depth <= n:
        raise refuse("", f"a layer of the {n} of the vision tower, from 1 or from -1 down", layer)
    cut = config.encoder.model_copy(update={"n_layers": depth, "final_norm": False})
    return cut.model_dump(mode="json")


def written_tower(image: Family, tower: Mapping[str, Any]) -> dict[str, Any] | None:
    """The config of a tower; None if its class cannot express it."""
    head = {path[5:]: value for path, value in image.heads[-1].constants.items() if path.startswith("head.")}
    encoder = {**tower, "final_norm": image.constants.get("encoder.final_norm")}
    written = image.write(ModelConfig.model_validate({"encoder": encoder, "head": head}))
    if written is None:
        raise ValueError("no tower of this class")
    document = {name: value for name, value in written[0].items() if name != "architectures"}
    return {**document, "vision_use_head": False} if image is SIGLIP_IMAGE else document


# --- the text model ------------------------------------------------------------------------------------------------

SHARED = ("is_causal",)
"""Fields of the whole that count for the text model."""


def text_part(
    family: Family,
    model_type: str,
    architecture: str,
    beside: Sequence[str] = (),
    *,
    tied: bool = False,
    either: bool = False,
    sight: Sight | None = None,
    reads: str = PICTURES,
) -> Family:
    """The family of a text model within a model of this class: alone, without the modules `beside` it, or with `sight`.

    The modules beside it are what `reads`, pictures or sounds. `tied` is the default for whether the class ties its
    output; with `either`, the text model's own word counts too.
    """
    head, fields = family.heads[0], () if sight is None else sight.fields
    names = (*SHARED, *(one.theirs for one in fields if isinstance(one, Field | Alias)))
    chosen = {"vision_config.model_type": sight.image.model_type} if sight is not None and sight.chosen else {}

    def flattened(document: dict[str, Any]) -> dict[str, Any]:
        text = document.get("text_config")
        if not isinstance(text, Mapping):
            raise refuse("text_config", "a table", short(text), ANOTHER)
        ties = document.get("tie_word_embeddings", tied) or (either and text.get("tie_word_embeddings", False))
        whole = {name: document[name] for name in names if document.get(name) is not None}
        own = {name: value for name, value in text.items() if sight is None or name not in sight.unread}
        return family.modernize({**own, **whole, "architectures": [architecture], "tie_word_embeddings": ties})

    def nested(flat: dict[str, Any]) -> dict[str, Any]:
        top = {"architectures", "tie_word_embeddings", *names}
        text = {name: value for name, value in flat.items() if name not in top and "." not in name}
        whole = {name: value for name, value in flat.items() if name in top and value is not None}
        return {**whole, "model_type": model_type, "text_config": {**text, "model_type": family.model_type}}

    def rules(config: ModelConfig) -> Sequence[Rule]:
        output, tops = head.rules(config), (TOP, OLDER) if sight is None else sight.tops[0]
        places = [prefixed(rule, top) for rule in family.rules(config) for top in tops]
        rest = (beside_it(*beside, reads=reads),) if sight is None else sight.rules(config)
        return (*rest, *places, *(prefixed(rule, "language_model.") for rule in output))

    return replace(
        family,
        model_type=model_type,
        rules=rules,
        heads=(replace(head, architecture=architecture, prefix=""),),
        modernize=flattened,
        nest=nested,
        only_if={"text_config.model_type": family.model_type, **chosen},
        constants={**family.constants, **({} if sight is None else sight.constants)},
        fields=(*fields, *family.fields),
        read_only=sight is None,
        without=reads if sight is None else "",
    )


# --- LLaVA (Liu et al. 2023) ---------------------------------------------------------------------------------------

TOWER = ("vision_tower", "multi_modal_projector")
LINES = (*TOWER, "image_newline")
IN_LLAVA = (LLAMA, MISTRAL, QWEN2)


def _mark(name: str, *, default: int) -> FieldRules:
    """The id of the token that a vector replaces, under its two names."""
    other = {"image_token_id": "image_token_index", "image_token_index": "image_token_id"}[name]
    return same(name, "pictures.mark_id", default=default), Alias(other, of=name)


def _tower_field(image: Family, read: Callable[[Any, Values], Any]) -> Field:
    def write(_: Any, ours: Values) -> dict[str, Any] | None:
        return written_tower(image, ours["pictures"]["tower"])

    return computed("vision_config", "pictures.tower", read=read, write=write, default=REQUIRED, like={})


def _llava(image: Family) -> Sight:
    def read(vision: Any, values: Values) -> dict[str, Any]:
        layer = values["vision_feature_layer"]
        if type(layer) is not int:
            raise refuse("", "one layer in vision_feature_layer", short(layer), ANOTHER)
        return tower_of(image, vision, layer=layer)

    places = {"default": False, "full": True}
    return Sight(
        image,
        (
            _tower_field(image, read),
            computed("vision_feature_layer", write=lambda *_: -1, default=-2, like=None),
            named("vision_feature_select_strategy", "pictures.keeps_first", names=places, default="default"),
            named("projector_hidden_act", "pictures.projector.activation", names=ACTIVATIONS, default="gelu"),
            same("multimodal_projector_bias", "pictures.projector.bias", default=True),
            *_mark("image_token_index", default=32_000),
            ignored("image_seq_length"),
        ),
        (rename("linear_1.{p}", "up.{p}"), rename("linear_2.{p}", "down.{p}")),
        chosen=True,
    )


LLAVA = (
    *(
        text_part(one, "llava", "LlavaForConditionalGeneration", either=True, sight=_llava(image))
        for one in IN_LLAVA
        for image in (CLIP_IMAGE, SIGLIP_IMAGE)
    ),
    *(text_part(one, "llava", "LlavaForConditionalGeneration", TOWER, either=True) for one in IN_LLAVA),
    replace(variants.llava_llama, model_type="llava", only_if={"architectures": ["LlavaLlamaForCausalLM"]}),
)
LLAVA_NEXT = tuple(text_part(one, "llava_next", "LlavaNextForConditionalGeneration", LINES) for one in IN_LLAVA)
LLAVA_ONEVISION = text_part(QWEN2, "llava_onevision", "LlavaOnevisionForConditionalGeneration", LINES, either=True)
QWEN3_5_PICTURES, QWEN3_5_MOE_PICTURES = (
    text_part(one, one.model_type.removesuffix("_text"), f"{name}ForConditionalGeneration", ("visual",))
    for one, name in ((QWEN3_5, "Qwen3_5"), (QWEN3_5_MOE, "Qwen3_5Moe"))
)

# --- Gemma 3 (Gemma Team 2025) and PaliGemma (Beyer et al. 2024) ---------------------------------------------------


def _whole_tower(image: Family) -> Field:
    def read(vision: Any, _: Values) -> dict[str, Any]:
        if (kind := vision.get("model_type", image.model_type)) != image.model_type:
            raise refuse("model_type", image.model_type, short(kind), ANOTHER)
        return tower_of(image, vision)

    return _tower_field(image, read)


def _pool(n_vectors: int, values: Values) -> int:
    """The side of the squares of patches that become one vector."""
    side = tower_of(SIGLIP_IMAGE, values["vision_config"])["input"]
    n, row = side["image_size"] // side["patch_size"], math.isqrt(n_vectors)
    if row * row != n_vectors or n % row:
        raise refuse("", f"a square of a number that divides {n}, the patches of a row", n_vectors, ANOTHER)
    return n // row


def _n_vectors(pool: int, ours: Values) -> int:
    reads = ours["pictures"]["tower"]["input"]
    return (reads["image_size"] // reads["patch_size"] // pool) ** 2


GEMMA_3 = text_part(
    GEMMA3,
    "gemma3",
    "Gemma3ForConditionalGeneration",
    tied=True,
    sight=Sight(
        SIGLIP_IMAGE,
        (
            _whole_tower(SIGLIP_IMAGE),
            replace(
                _tower_field(SIGLIP_IMAGE, lambda vision, _: vision.get("layer_norm_eps", 1e-6)),
                ours=("pictures.projector.norm_eps",),
            ),
            computed("mm_tokens_per_image", "pictures.projector.pool", read=_pool, write=_n_vectors, default=256),
            *_mark("image_token_index", default=262_144),
            same("boi_token_index", "pictures.first_id", default=255_999),
            Alias("boi_token_id", of="boi_token_index"),
            same("eoi_token_index", "pictures.last_id", default=256_000),
            Alias("eoi_token_id", of="eoi_token_index"),
        ),
        (transpose("mm_input_projection_weight", "up.weight"), rename("mm_soft_emb_norm.{p}", "norm.{p}")),
        {"pictures.projector.bias": False, "pictures.sees": "picture", "pictures.around": "\n\n"},
    ),
)
PALIGEMMA = tuple(
    text_part(
        one,
        "paligemma",
        "PaliGemmaForConditionalGeneration",
        tied=True,
        sight=Sight(
            SIGLIP_IMAGE,
            (
                _whole_tower(SIGLIP_IMAGE),
                *_mark("image_token_index", default=256_000),
                computed("projection_dim", write=lambda _, ours: ours["decoder"]["d_model"], default=2048),
                ignored("num_image_tokens"),
                Only("final_logit_softcapping", None),
            ),
            (rename("linear.{p}", "up.{p}"),),
            {"pictures.sees": "prompt"},
            unread=("use_bidirectional_attention",),
        ),
    )
    for one in (GEMMA, GEMMA2)
)

# --- Idefics 3 (Laurençon et al. 2024) and SmolVLM (Marafioti et al. 2025) -----------------------------------------

MISPLACED = {19, 25, 29, 31, 38, 40, 41, 43, 47, 49, 50, 54, 55, 58, 59, 61, 62}
"""Numbers of patches in a row up to 64 at which the reference's rounding gives a patch the position of another one."""


def _tile_fields(model_type: str) -> tuple[Family, FieldRules]:
    """The family of the tower, and the fields of the whole."""
    sizes: JsonObject = {"hidden_size": 1152, "intermediate_size": 3072, "num_attention_heads": 16}
    same_as = {"layer_norm_eps": 1e-6, "hidden_act": "gelu_pytorch_tanh", "initializer_range": 0.02}
    image = replace(
        SIGLIP_IMAGE,
        model_type=f"{model_type}_vision",
        fields=(*picture_fields(patch_size=32, n_first=0), *tower_fields("encoder", **sizes, **same_as), *UNREAD),
    )

    def read(vision: Any, _: Values) -> dict[str, Any]:
        tower = tower_of(image, vision)
        n = tower["input"]["image_size"] // tower["input"]["patch_size"]
        if n in MISPLACED or n > 64:
            raise refuse("", "at most 64 patches in a row, whose positions are exact there", n, ANOTHER)
        return tower

    return image, (
        _tower_field(image, read),
        same("scale_factor", "pictures.projector.join", default=2),
        *_mark("image_token_id", default=128_257),
        ignored("_pad_token_id"),
    )


def _tiles(model_type: str, architecture: str) -> Family:
    image, fields = _tile_fields(model_type)
    projector = (rename("modality_projection.proj.{p}", "up.{p}"),)
    constants = {"pictures.projector.bias": False, "pictures.tiles": True}
    tops = ("model.text_model.",), ("model.",), ("",)
    sight = Sight(image, fields, projector, constants, names=("vision_model", "connector"), tops=tops)
    return text_part(LLAMA, model_type, architecture, sight=sight)


IDEFICS_3 = _tiles("idefics3", "Idefics3ForConditionalGeneration")
SMOLVLM = _tiles("smolvlm", "SmolVLMForConditionalGeneration")
