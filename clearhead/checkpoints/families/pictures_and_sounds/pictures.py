"""Models that read pictures within a text: LLaVA and its kin. A tower, a projector and a text model, each a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families.decoders.llama import LLAMA, MISTRAL, QWEN2
from clearhead.checkpoints.families.decoders.two_kinds import GEMMA3
from clearhead.checkpoints.families.family import Family, prefixed
from clearhead.checkpoints.families.pictures_and_sounds.towers import CLIP_IMAGE, SIGLIP_IMAGE
from clearhead.checkpoints.families.shared import ACTIVATIONS
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import (
    ANOTHER,
    REQUIRED,
    Alias,
    Field,
    FieldRule,
    Values,
    computed,
    ignored,
    named,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, leave_out, rename
from clearhead.config import ModelConfig, NoHead
from clearhead.errors import refuse

# --- the tower and the projector -----------------------------------------------------------------------------------

IMAGES = {one.model_type: one for one in (CLIP_IMAGE, SIGLIP_IMAGE)}
UNSEEN = "no vector of a picture depends on it"
MOST_LEFT_OUT = 32
"""Most layers of a tower behind the one that is read."""


def tower_of(vision: Any, *, layer: int | None) -> dict[str, Any]:
    """The stack of a tower up to hidden state `layer`, which has no last norm, or to the end."""
    image = IMAGES[vision["model_type"]]
    own = {**vision, "architectures": [image.heads[-1].architecture], "vision_use_head": True}
    config, _ = image.read(own, where="vision_config")
    assert config.encoder is not None
    n = config.encoder.n_layers
    if layer is None:
        return config.encoder.model_dump(mode="json")
    depth = layer if layer >= 0 else n + 1 + layer
    if not 0 < depth <= n:
        raise refuse("", f"a layer of the {n} of the vision tower, from 1 or from -1 down", layer)
    cut = config.encoder.model_copy(update={"n_layers": depth, "final_norm": False})
    return cut.model_dump(mode="json")


def tower_rules(config: ModelConfig, image: Family) -> Iterator[Rule]:
    """The weights of a tower under its names of today and the older ones."""
    assert config.pictures is not None
    tower = config.pictures.tower
    beyond = range(tower.n_layers, tower.n_layers + MOST_LEFT_OUT)
    own = image.rules(ModelConfig(encoder=tower, head=NoHead()))
    for top in (f"{model}vision_tower.{inner}" for model in ("model.", "") for inner in ("vision_model.", "")):
        unread = (f"{top}encoder.layers.{i}.{{a}}{rest}" for i in beyond for rest in (".{b}", ".{b}.{c}"))
        yield leave_out(*unread, because=UNSEEN)
        for rule in (prefixed(rule, top) for rule in own):
            ours = rule.ours[0] if rule.ours else ""
            if ours.startswith("head.") or (ours.startswith("encoder.final_norm") and not tower.has_final_norm):
                yield leave_out(*rule.theirs, because=UNSEEN)
            else:
                yield replace(rule, ours=tuple(f"pictures.tower.{name.removeprefix('encoder.')}" for name in rule.ours))


def projector_rules(*rules: Rule) -> Iterator[Rule]:
    """The weights of a projector, whose rules have names within it, under today's name and the older one."""
    for top in ("model.multi_modal_projector.", "multi_modal_projector."):
        for rule in rules:
            yield replace(prefixed(rule, top), ours=tuple(f"pictures.projector.{name}" for name in rule.ours))


# --- the text model ------------------------------------------------------------------------------------------------

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
    image: Family | None = None,
    fields: Sequence[FieldRule] = (),
    projector: Sequence[Rule] = (),
    constants: Mapping[str, Any] | None = None,
) -> Family:
    """The family of a text model as the part of a model of this class, which has the modules `beside` it.

    With an `image` family, the whole model: `fields` of its config and rules of its `projector` read the rest.
    `tied` is the default for whether the class ties its output; with `either`, the text model's own word counts too.
    """
    head, seen = family.heads[0], dict[str, Any]() if image is None else {"vision_config.model_type": image.model_type}

    def flattened(document: dict[str, Any]) -> dict[str, Any]:
        text = document.get("text_config")
        if not isinstance(text, Mapping):
            raise refuse("text_config", "a table", short(text), ANOTHER)
        ties = document.get("tie_word_embeddings", tied) or (either and text.get("tie_word_embeddings", False))
        names = (*SHARED, *(one.theirs for one in fields if isinstance(one, Field | Alias)))
        whole = {name: document[name] for name in names if document.get(name) is not None}
        return family.modernize({**text, **whole, "architectures": [architecture], "tie_word_embeddings": ties})

    def rules(config: ModelConfig) -> Sequence[Rule]:
        own = family.rules(config)
        output = head.rules(config)
        places = [prefixed(rule, top) for rule in own for top in (TOP, OLDER)]
        rest = (_beside(*beside),) if image is None else (*tower_rules(config, image), *projector_rules(*projector))
        return (*rest, *places, *(prefixed(rule, "language_model.") for rule in output))

    return replace(
        family,
        model_type=model_type,
        rules=rules,
        heads=(replace(head, architecture=architecture, prefix=""),),
        modernize=flattened,
        only_if={"text_config.model_type": family.model_type, **seen},
        constants={**family.constants, **(constants or {})},
        fields=(*fields, *family.fields),
        read_only=True,
        without="" if image else PICTURES,
    )


TOWER = ("vision_tower", "multi_modal_projector")
LINES = (*TOWER, "image_newline")
IN_LLAVA = (LLAMA, MISTRAL, QWEN2)
GEMMA_3 = text_part(GEMMA3, "gemma3", "Gemma3ForConditionalGeneration", TOWER, tied=True)


def _layer(vision: Any, values: Values) -> dict[str, Any]:
    """The tower up to the layer that the config names."""
    if isinstance(values["vision_feature_layer"], list):
        raise refuse("vision_feature_layer", "one layer", short(values["vision_feature_layer"]), ANOTHER)
    return tower_of(vision, layer=values["vision_feature_layer"])


LLAVA_FIELDS = (
    computed("vision_config", "pictures.tower", read=_layer, default=REQUIRED, like={}),
    computed("vision_feature_layer", default=-2, like=None),
    named(
        "vision_feature_select_strategy",
        "pictures.keeps_first",
        names={"default": False, "full": True},
        default="default",
    ),
    named("projector_hidden_act", "pictures.projector.activation", names=ACTIVATIONS, default="gelu"),
    same("multimodal_projector_bias", "pictures.projector.bias", default=True),
    same("image_token_index", "pictures.mark_id", default=32_000),
    Alias("image_token_id", of="image_token_index"),
    ignored("image_seq_length"),
)
LLAVA_PROJECTOR = (rename("linear_1.{p}", "up.{p}"), rename("linear_2.{p}", "down.{p}"))
LLAVA = (
    *(
        text_part(
            one,
            "llava",
            "LlavaForConditionalGeneration",
            TOWER,
            either=True,
            image=image,
            fields=LLAVA_FIELDS,
            projector=LLAVA_PROJECTOR,
        )
        for one in IN_LLAVA
        for image in IMAGES.values()
    ),
    *(text_part(one, "llava", "LlavaForConditionalGeneration", TOWER, either=True) for one in IN_LLAVA),
)
LLAVA_NEXT = tuple(text_part(one, "llava_next", "LlavaNextForConditionalGeneration", LINES) for one in IN_LLAVA)
LLAVA_ONEVISION = text_part(QWEN2, "llava_onevision", "LlavaOnevisionForConditionalGeneration", LINES, either=True)
