"""The verdicts of a few folders, the search for silent differences, and the page that was written."""

import json
import random
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from clearhead.checkpoints.families import families
from clearhead.checkpoints.weights.fields import Field
from tests.conftest import ROOT
from tests.coverage import draw, folders, page, search
from tests.coverage.outcome import Outcome, outcome
from tests.later import later

later("transformers")

COUNTS = {
    "repositories": 10,
    "classes": {"GPT2LMHeadModel": 5, "GPT2DoubleHeadsModel": 1, "GPT2WithoutTable": 1, "MambaForCausalLM": 3},
    "top_list": {"millions": {"gpt2": 3.0, "mamba": 1.0}},
}


@pytest.fixture(scope="module")
def lines() -> list[page.Line]:
    """One that opens, with two classes of it; one with a missing mechanism; one of which a part opens."""
    family = next(one for one in families() if one.model_type == "gpt2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "families", lambda: (replace(family, heads=family.heads[:2]),))
        return _lines()


def _lines() -> list[page.Line]:
    return [page.line(one) for folder in ("gpt2", "mamba", "vipllava") for one in folders.rows(folder)]


def test_a_verdict_for_each(lines: list[page.Line]) -> None:
    gpt2, mamba, llava = lines
    assert (gpt2.kind, gpt2.why) == ("opens", "")
    assert gpt2.gap < 1e-5
    assert len(gpt2.opens) == 2
    assert gpt2.also == ("GPT2DoubleHeadsModel",)
    assert mamba.kind == "does not open"
    assert mamba.why.startswith("state space layers (state_size=16)")
    assert "text_config (llama): opens" in llava.why


def test_the_shares_follow_from_the_classes(lines: list[page.Line]) -> None:
    lines = [replace(lines[0], others=("GPT2WithoutTable",)), *lines[1:]]
    found = page.shares(lines, COUNTS)
    assert (found.opens, found.but_for_a_head, found.missing) == (6, 1, (("MambaForCausalLM", 3),))
    assert (found.opened, found.millions, found.types) == (3.0, 4.0, ("mamba",))
    text = page.page(lines, COUNTS, "now")
    assert "- 3 modelling folders, 0 crashes; now." in text
    assert "**60.0% of 10 repositories**" in text
    assert "**75.0% of the downloads**" in text


def test_a_run_goes_on_where_it_was_stopped(lines: list[page.Line], tmp_path: Path) -> None:
    for one in lines:
        page.keep(tmp_path / "state", one)
    assert page.kept(tmp_path / "state") == lines
    assert page.Line.of(json.loads(json.dumps(asdict(lines[0])))) == lines[0]


def test_a_folder_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("of mine")

    monkeypatch.setattr(page, "_line", fails)
    found = page.line(folders.Modelled("gpt2", "gpt2"))
    assert (found.kind, found.why) == ("crash", "ZeroDivisionError: of mine")


def test_the_page_has_every_family() -> None:
    text = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
    there = set(re.findall(r"^\| \w+ \| (\S+) \| \d", text, re.MULTILINE))
    missing = {family.model_type for family in families() if not family.read_only} - there
    assert not missing, f"run python -m tests.coverage, which writes the page: {sorted(missing)}"


# --- the search ------------------------------------------------------------------------------------------------------


def test_a_silent_difference_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that ignores what it should read."""
    case = folders.tiny("gpt2", "GPT2LMHeadModel")
    assert case is not None
    changed = replace(case, config={**case.config, "activation_function": "relu"})
    good = outcome(changed, tmp_path)
    assert good.what == "close"
    family = next(one for one in families() if one.model_type == "gpt2")
    deaf = tuple(
        replace(one, read=lambda *_: "gelu") if isinstance(one, Field) and one.theirs == "activation_function" else one
        for one in family.fields
    )
    monkeypatch.setattr("clearhead.checkpoints.families._of_type", lambda _: (replace(family, fields=deaf),))
    assert outcome(changed, tmp_path).what == "different"
    assert search.inert(replace(good, theirs=tuple(one + 1 for one in good.theirs)), good).what == "different"
    assert search.inert(good, good) == good


def test_trials_are_the_same_again_and_change_something() -> None:
    found = [search.trial(n, seed=3) for n in range(4)]
    assert [one.changes for one in found] == [search.trial(n, seed=3).changes for n in range(4)]
    assert any(one.changes for one in found)
    assert not [str(one) for one in found if one.found.what in ("different", "traceback")]


def test_what_is_wrong_is_kept() -> None:
    case = folders.tiny("gpt2", "GPT2Model")
    assert case is not None
    tally = search.Tally()
    for what in ("close", "different", "refused"):
        tally.add(search.Trial(case, {}, Outcome(what)))
    assert dict(tally.counts) == {"close": 1, "different": 1, "refused": 1}
    assert [one.found.what for one in tally.wrong] == ["different"]


def test_every_kind_of_field_has_other_values() -> None:
    kinds = {"a": True, "b": 7, "c": 0.5, "hidden_act": "gelu", "d": [1, 2], "layer_types": ["full_attention"] * 2}
    for name, value in kinds.items():
        values = draw.others(name, value)
        assert values, name
        assert value not in values, name
    assert draw.others("e", None, "int | None") == [1, 2, 3, 8]
    case = folders.tiny("gpt2", "GPT2LMHeadModel")
    assert case is not None
    assert draw.drawn(case, random.Random(1))[1]
    assert "scale_attn_weights" in draw.known_fields(case)
