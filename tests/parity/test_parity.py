"""Every architecture against the reference library: logits, hidden states, and the way there and back."""

import json
from dataclasses import replace

import pytest
import torch

from clearhead.analysis.comparison import CLOSE, LOGITS, reference_states, states, without_padding
from clearhead.api import load
from clearhead.model import Tokens
from tests.later import later
from tests.parity.cases import (
    CASES,
    DERIVED,
    ONE_A_FAMILY,
    ONE_A_NETWORK,
    ONE_EACH,
    REPRESENTATIVES,
    marked,
    mostly_slow,
)
from tests.parity.harness import Case, Gap, both, gaps, inputs, kept, round_trip

later("transformers")

NEVER_ABOVE = 1e-4
COMPILED = ("t5",)
"""What every run of the suite compiles: an encoder with a decoder."""
TWICE, ROUNDING = 2.0, 2**-7
"""The band in bfloat16: at most twice as far from float32 as the reference itself is, plus one rounding."""


@pytest.mark.parametrize("case", [*marked(CASES), *mostly_slow(DERIVED)], ids=str)
def test_equals_the_reference(case: Case, tmp_path):
    theirs, ours = both(case, tmp_path / "theirs")
    for way, gap in gaps(case, theirs, ours):
        assert gap.relative <= CLOSE, (way, gap)
        assert max(gap.logits, gap.hidden) <= NEVER_ABOVE, (way, gap)
    round_trip(theirs, ours, tmp_path / "ours")


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "case",
    [case if case.family in COMPILED else pytest.param(case, marks=pytest.mark.slow) for case in ONE_A_FAMILY],
    ids=str,
)
def test_compiled_equals_the_reference(case: Case, backend: str):
    theirs, ours, _ = kept(case)
    batch = inputs(case, theirs)
    torch.compiler.reset()
    with torch.no_grad():
        logits = torch.compile(ours.network, backend=backend, fullgraph=True)(*batch.ours)
    expected = reference_states(theirs, batch.theirs, ours.network)
    found = without_padding(states(ours.network, batch.ours) | {LOGITS: logits}, ours.network, batch.ours)
    gap = Gap.between(expected, found, batch.ours)
    assert gap.relative <= CLOSE, gap


@pytest.mark.parametrize("case", ONE_A_NETWORK, ids=str)
def test_bfloat16_stays_within_its_band(case: Case):
    exact, _, folder = kept(case)
    ours, batch = load(folder, dtype=torch.bfloat16).network, inputs(case, exact)
    expected = reference_states(exact, batch.theirs, ours)
    theirs = type(exact).from_pretrained(folder, dtype=torch.bfloat16).eval()
    arguments = {name: one.bfloat16() if one.is_floating_point() else one for name, one in batch.theirs.items()}
    tokens = [replace(t, ids=t.ids.bfloat16()) if t.ids.is_floating_point() else t for t in batch.ours]
    band = TWICE * Gap.between(expected, reference_states(theirs, arguments, ours), batch.ours).relative + ROUNDING
    found = states(ours, tokens)
    assert found[LOGITS].dtype == torch.bfloat16
    assert Gap.between(expected, found, batch.ours).relative <= band


@pytest.mark.parametrize("case", ONE_EACH, ids=str)
def test_every_field_of_the_config_is_accounted_for(case: Case, tmp_path, caplog):
    both(case, tmp_path)
    assert not [record for record in caplog.records if "not read" in record.message]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"mystery_scale": 2.0}))
    load(tmp_path)
    told = [record.message for record in caplog.records if "not read" in record.message]
    assert told == [f"{path}: not read, as it changes no number in transformers 5.23.0 either: mystery_scale"]


def test_the_comparison_sees_a_wrong_weight(tmp_path):
    case = REPRESENTATIVES[0]
    theirs, ours = both(case, tmp_path)
    with torch.no_grad():
        next(ours.network.parameters())[5] += 1e-3
    assert max(gap.relative for _, gap in gaps(case, theirs, ours)) > CLOSE


def test_padding_of_the_comparison_is_left_out():
    tokens = Tokens.pad([[1, 2, 3], [4]])
    value = torch.zeros(2, 3, 5)
    changed = value.clone()
    changed[1, 1:] = 9.0
    named = {LOGITS: value, "decoder.blocks.0.resid_pre": value}
    assert Gap.between(named, dict.fromkeys(named, changed), [tokens]) == Gap(0.0, 0.0, 0.0)
