"""What is compared with the reference library: tables of configurations, one file a kind of network."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.parity.harness import Case

FILES = ("decoders", "encoder_decoders", "encoders", "mixtures", "pictures_and_sounds")


def with_none(value: Any) -> Any:
    """The value with None for "null", which TOML does not have."""
    if isinstance(value, dict):
        return {name: with_none(item) for name, item in value.items()}
    if isinstance(value, list):
        return [with_none(item) for item in value]
    return None if value == "null" else value


def _read(file: str) -> Iterator[tuple[str, list[Case]]]:
    """The cases of each family of a file."""
    tables = with_none(tomllib.loads(Path(__file__).with_name(f"{file}.toml").read_text(encoding="utf-8")))
    shared = tables.pop("changes")
    for name, about in tables.items():
        family, pads, cases = about.get("family", name), about.get("pads", {}), list[Case]()
        for architecture, one in about["classes"].items():
            base = {**about["base"], **one.get("more", {})}
            changes = {**shared, **about.get("changes", {}), **one.get("changes", {})}
            for i, variant in enumerate(one["variants"]):
                config = {**base, **(changes[variant] if i else {})}
                slow = variant not in one["quick"] if "quick" in one else None
                pad = pads.get(variant, about.get("pad", 0))
                cases.append(Case(family, variant, architecture, config, pad, slow))
        yield name, cases


FAMILIES: Mapping[str, list[Case]] = {family: cases for file in FILES for family, cases in _read(file)}


def of(*families: str) -> list[Case]:
    """The cases of these families."""
    return [case for family in families for case in FAMILIES[family]]


def base(family: str) -> dict[str, Any]:
    """The base configuration of a family's first class."""
    return dict(FAMILIES[family][0].config)


MAIN = (
    "gpt2", "llama", "arcee", "mistral", "qwen2", "qwen3", "bert", "roberta", "xlm-roberta", "camembert",
    "data2vec-text", "distilbert", "albert", "electra", "mpnet", "deberta-v2", "esm", "nomic_bert", "gte",
    "jina_embeddings_v3", "eurobert", "modernbert", "vit", "whisper", "wav2vec2", "hubert", "unispeech",
    "unispeech-sat", "deit", "dinov2", "dinov2_with_registers", "dinov3_vit", "clip_text_model", "clip_vision_model",
    "siglip_text_model", "siglip_vision_model", "marian", "pegasus", "bart", "mbart", "m2m_100", "blenderbot", "t5",
    "mt5",
)  # fmt: skip
"""Families that are compared class by class."""
PICTURED: list[Case] = of("llava", "gemma3", "paligemma", "idefics3", "smolvlm", "qwen2_5_vl", "qwen2_vl")
"""Models of pictures within texts."""
TEXT_PARTS: list[Case] = of(
    "llava_next", "llava_onevision", "qwen3_5", "qwen3_5_moe", "mistral3", "lighton_ocr", "internvl",
    "vipllava", "kimi_k25", "qwen2_audio", "audioflamingo3", "musicflamingo", "qwen3_asr", "glmasr", "voxtral",
)  # fmt: skip
"""Models of pictures or sounds and texts, of which the text model is compared."""
CASES: list[Case] = of(*MAIN)
REPRESENTATIVES: list[Case] = [case for case in CASES if case.variant == "base"]
"""One for each class: for checks that take longer."""
ONE_A_FAMILY: list[Case] = [*{case.family: case for case in reversed(REPRESENTATIVES)}.values()]
"""The first class of each family: for checks that take long."""


MIXTURES: list[Case] = [case for _, cases in _read("mixtures") for case in cases]
DERIVED: list[Case] = [
    case
    for family, cases in FAMILIES.items()
    if family not in MAIN
    for case in cases
    if case not in (*TEXT_PARTS, *PICTURED)
]
"""Families that share fields and rules with others."""
DERIVED_REPRESENTATIVES: list[Any] = [
    pytest.param(case, marks=pytest.mark.slow) for case in DERIVED if case.variant == "base"
]
"""One for each class, only for `-m slow`."""
ONE_EACH: list[Any] = [
    *(pytest.param(case, marks=[] if case in ONE_A_FAMILY else [pytest.mark.slow]) for case in REPRESENTATIVES),
    *DERIVED_REPRESENTATIVES,
]
"""One for each class; but for the first class of each family, only for `-m slow`."""
RELATIVES = ("arcee", "mistral", "qwen2", "qwen3", "pegasus", "mbart", "m2m_100", "blenderbot", "mt5", "deit")
"""Families whose network is another's under other fields: Llama's, Marian's, BART's, T5's, ViT's."""
ONE_A_NETWORK: list[Any] = [
    pytest.param(case, marks=[] if case in ONE_A_FAMILY and case.family not in RELATIVES else [pytest.mark.slow])
    for case in [*REPRESENTATIVES, *(case for case in DERIVED if case.variant == "base")]
]
"""The same for checks of the network alone, of which relatives show no more: they are for `-m slow`."""


def marked(cases: list[Case], *, one_in: int = 8) -> list[Any]:
    """All, as parameters. For every run of the suite are the classes' bases, of relatives the first class's, and one
    in eight of the variants without a word about it.
    """
    variants = [case for case in cases if case.variant != "base" and case.slow is None]
    quick = {str(case) for case in variants[::one_in]}
    slow = {str(case) for case in cases if case.slow} | ({str(case) for case in variants} - quick)
    slow |= {str(case) for case in REPRESENTATIVES if case.family in RELATIVES and case not in ONE_A_FAMILY}
    return [pytest.param(case, marks=[pytest.mark.slow] if str(case) in slow else []) for case in cases]


def mostly_slow(cases: list[Case]) -> list[Any]:
    """All, as parameters: only for `-m slow`, but for the first class of each family."""
    quick = {str(case) for case in {case.family: case for case in reversed(cases)}.values()}
    return [pytest.param(case, marks=[] if str(case) in quick else [pytest.mark.slow]) for case in cases]
