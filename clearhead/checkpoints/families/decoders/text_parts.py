"""The text models inside models that also read pictures: Gemma 3, LLaVA, LLaVA-NeXT, LLaVA-OneVision.

A text goes through nothing else there. What reads pictures is left out, and a model is written as its text model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families.decoders import gemma, llama, qwen
from clearhead.checkpoints.families.family import Family, prefixed
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import ANOTHER
from clearhead.checkpoints.weights.mapping import Rule, leave_out
from clearhead.config import ModelConfig
from clearhead.errors import UserError

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
LLAVA, NEXT = "LlavaForConditionalGeneration", "LlavaNextForConditionalGeneration"
GEMMA_3 = text_part(gemma.GEMMA3, "gemma3", "Gemma3ForConditionalGeneration", TOWER, tied=True)
LLAVA_LLAMA = text_part(llama.FAMILY, "llava", LLAVA, TOWER, either=True)
LLAVA_MISTRAL = text_part(llama.MISTRAL, "llava", LLAVA, TOWER, either=True)
LLAVA_QWEN = text_part(qwen.QWEN2, "llava", LLAVA, TOWER, either=True)
NEXT_LLAMA = text_part(llama.FAMILY, "llava_next", NEXT, LINES)
NEXT_MISTRAL = text_part(llama.MISTRAL, "llava_next", NEXT, LINES)
NEXT_QWEN = text_part(qwen.QWEN2, "llava_next", NEXT, LINES)
ONE_QWEN = text_part(qwen.QWEN2, "llava_onevision", "LlavaOnevisionForConditionalGeneration", LINES, either=True)
ALL = (
    GEMMA_3,
    LLAVA_LLAMA,
    LLAVA_MISTRAL,
    LLAVA_QWEN,
    NEXT_LLAMA,
    NEXT_MISTRAL,
    NEXT_QWEN,
    ONE_QWEN,
)
