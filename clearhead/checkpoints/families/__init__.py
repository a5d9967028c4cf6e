"""Named architectures and the Hugging Face families. Each family is data in a file of its own."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from clearhead.checkpoints.families import small, transformer
from clearhead.checkpoints.families.decoders import (
    bloom,
    cohere,
    elsewhere,
    falcon,
    gemma,
    glm,
    gpt2,
    gpt_neo,
    gpt_neox,
    gptj,
    llama,
    llama_kin,
    llama_tables,
    olmo,
    opt,
    phi,
    qwen,
    text_parts,
    xglm,
)
from clearhead.checkpoints.families.encoder_decoders import bart, marian, mbart, t5
from clearhead.checkpoints.families.encoders import (
    albert,
    bert,
    deberta,
    distilbert,
    electra,
    esm,
    eurobert,
    modernbert,
    mpnet,
    roberta,
    rotary_berts,
)
from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.mixtures import deepseek, gpt_oss, mixtures, sigmoid_mixtures
from clearhead.checkpoints.families.pictures_and_sounds import (
    clip,
    deit,
    dinov2,
    dinov3,
    siglip,
    vit,
    wav2vec2,
    whisper,
)
from clearhead.checkpoints.families.unknown import unknown
from clearhead.checkpoints.weights.quantization import method_of
from clearhead.config import ModelConfig
from clearhead.errors import UserError

__all__ = ["FAMILIES", "Family", "HeadMap", "family_for", "family_named", "family_of", "preset", "presets"]

FAMILIES: tuple[Family, ...] = (
    gpt2.FAMILY,
    llama.FAMILY,
    llama.ARCEE,
    llama.MISTRAL,
    qwen.QWEN2,
    qwen.QWEN3,
    bert.FAMILY,
    roberta.FAMILY,
    roberta.XLM_FAMILY,
    roberta.CAMEMBERT_FAMILY,
    roberta.DATA2VEC_FAMILY,
    distilbert.FAMILY,
    albert.FAMILY,
    electra.FAMILY,
    mpnet.FAMILY,
    deberta.FAMILY,
    esm.ROTARY,
    esm.LEARNED,
    rotary_berts.NOMIC,
    rotary_berts.GTE,
    rotary_berts.JINA,
    eurobert.FAMILY,
    modernbert.FAMILY,
    vit.FAMILY,
    whisper.FAMILY,
    wav2vec2.FAMILY,
    wav2vec2.HUBERT,
    wav2vec2.UNISPEECH,
    wav2vec2.UNISPEECH_SAT,
    deit.FAMILY,
    dinov2.FAMILY,
    dinov2.WITH_REGISTERS,
    dinov3.FAMILY,
    clip.TEXT,
    clip.IMAGE,
    siglip.TEXT,
    siglip.IMAGE,
    marian.MARIAN,
    marian.PEGASUS,
    bart.FAMILY,
    mbart.MBART,
    mbart.M2M_100,
    mbart.BLENDERBOT,
    t5.FAMILY,
    t5.MT5,
    t5.UMT5,
    gpt_neox.FAMILY,
    gptj.FAMILY,
    gptj.CODEGEN,
    gpt_neo.FAMILY,
    gpt_neo.BIGCODE,
    opt.FAMILY,
    bloom.FAMILY,
    bloom.MPT,
    falcon.FAMILY,
    phi.FAMILY,
    phi.PHI3,
    gemma.FAMILY,
    gemma.GEMMA2,
    gemma.EMBEDDING_GEMMA,
    gemma.GEMMA3,
    cohere.FAMILY,
    cohere.COHERE2,
    glm.FAMILY,
    glm.GLM4,
    olmo.OLMO2,
    olmo.OLMO3,
    llama_kin.GRANITE,
    llama_kin.SMOLLM3,
    llama_kin.STARCODER2,
    llama_kin.NEMOTRON,
    llama_kin.STABLELM,
    *llama_tables.ALL,
    xglm.FAMILY,
    *elsewhere.ALL,
    mixtures.MIXTRAL,
    mixtures.QWEN2_MOE,
    mixtures.QWEN3_MOE,
    mixtures.OLMOE,
    gpt_oss.FAMILY,
    sigmoid_mixtures.GLM4_MOE,
    sigmoid_mixtures.MINIMAX_M2,
    sigmoid_mixtures.GRANITE_MOE,
    deepseek.DEEPSEEK_V3,
    deepseek.KIMI_K2,
    deepseek.DEEPSEEK_V2,
    deepseek.GLM4_MOE_LITE,
    deepseek.YOUTU,
    deepseek.MINICPM3,
    *text_parts.ALL,
)
"""Every architecture that can be read and written. If several fit a network, the first is written."""


def family_of(document: Mapping[str, Any], *, where: str) -> Family:
    """The family that a config names. Raises UserError if it, or how its weights are quantized, is unknown."""
    family = family_named(document)
    method_of(document, where=where, but=() if family is None else family.packings)
    if family is None:
        raise unknown(document, FAMILIES).error(where)
    return family


def family_named(document: Mapping[str, Any]) -> Family | None:
    """The family that a config names, however its weights are quantized; None if it is unknown."""
    return next((family for family in FAMILIES if family.reads(document)), None)


def family_for(config: ModelConfig, prefer: str | None = None) -> tuple[Family, HeadMap, dict[str, Any]] | None:
    """The first family that can express this network, with its head and config. `prefer` is tried first."""
    for family in sorted(FAMILIES, key=lambda family: family.model_type != prefer):
        found = family.write(config)
        if found is not None:
            document, head = found
            return family, head, document
    return None


def presets() -> dict[str, ModelConfig]:
    """Every preset by name."""
    return transformer.PRESETS | bert.PRESETS | gpt2.PRESETS | llama.PRESETS | vit.PRESETS | small.PRESETS


def preset(name: str) -> ModelConfig:
    """The preset of this name. Raises UserError with the nearest name if there is none."""
    known = presets()
    if name not in known:
        nearest = get_close_matches(name, known, n=1)
        remedy = nearest[0] if nearest else f"one of {', '.join(sorted(known))}"
        raise UserError(f"preset: expected the name of an architecture, got {name!r}; try {remedy}")
    return known[name]
