"""What is compared with the reference library: one file a family."""

from typing import Any

import pytest

from tests.parity.cases import (
    albert,
    arcee,
    bart,
    bert,
    deberta,
    decoders,
    deepseek,
    distilbert,
    electra,
    esm,
    eurobert,
    gpt2,
    llama,
    marian,
    mbart,
    mistral,
    mixtures,
    modernbert,
    mpnet,
    mt5,
    pegasus,
    pictures,
    qwen2,
    qwen3,
    roberta,
    rotary_berts,
    t5,
    tables,
    towers,
    umt5,
    vit,
    wav2vec2,
    whisper,
)
from tests.parity.harness import Case

CASES: list[Case] = [
    *gpt2.CASES,
    *llama.CASES,
    *arcee.CASES,
    *mistral.CASES,
    *qwen2.CASES,
    *qwen3.CASES,
    *bert.CASES,
    *roberta.CASES,
    *distilbert.CASES,
    *albert.CASES,
    *electra.CASES,
    *mpnet.CASES,
    *deberta.CASES,
    *esm.CASES,
    *rotary_berts.CASES,
    *eurobert.CASES,
    *modernbert.CASES,
    *vit.CASES,
    *whisper.CASES,
    *wav2vec2.CASES,
    *pictures.CASES,
    *towers.CASES,
    *marian.CASES,
    *pegasus.CASES,
    *bart.CASES,
    *mbart.CASES,
    *t5.CASES,
    *mt5.CASES,
]
REPRESENTATIVES: list[Case] = [case for case in CASES if case.variant == "base"]
"""One for each class: for checks that take longer."""
ONE_A_FAMILY: list[Case] = [*{case.family: case for case in reversed(REPRESENTATIVES)}.values()]
"""The first class of each family: for checks that take long."""


DERIVED: list[Case] = [*decoders.CASES, *tables.CASES, *umt5.CASES, *deberta.HEADS, *mixtures.CASES, *deepseek.CASES]
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
