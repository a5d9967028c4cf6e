"""The verdicts of a few folders, the search for silent differences, and the page that was written."""

import re
from dataclasses import replace

from clearhead.checkpoints.families import families
from clearhead.checkpoints.weights.fields import Field
from tests.conftest import ROOT
from tests.coverage import folders, page, search
from tests.coverage.outcome import outcome
from tests.later import later

later("transformers")

COUNTS = {
    "repositories": 10,
    "classes": {"GPT2LMHeadModel": 5, "GPT2DoubleHeadsModel": 1, "GPT2WithoutTable": 1, "PatchTSMixerForPrediction": 3},
    "top_list": {"millions": {"gpt2": 3.0, "patchtsmixer": 1.0}},
}


def test_a_verdict_for_each(monkeypatch):
    """One that opens, with two classes of it; one with a missing mechanism; one of which a part opens."""
    family = next(one for one in families() if one.model_type == "gpt2")
    monkeypatch.setattr(page, "families", lambda: (replace(family, heads=family.heads[:2]),))
    lines = [page.line(one) for folder in ("gpt2", "patchtsmixer", "video_llava") for one in folders.rows(folder)]
    gpt2, mixer, llava = lines
    assert (gpt2.kind, gpt2.why, len(gpt2.opens), gpt2.also) == ("opens", "", 2, ("GPT2DoubleHeadsModel",))
    assert gpt2.gap < 1e-5
    assert mixer.why.startswith("forecasts of time series (prediction_length=16)")
    assert "text_config (llama): opens" in llava.why
    text = page.page([replace(gpt2, others=("GPT2WithoutTable",)), mixer, llava], COUNTS, "now")
    for figure in (
        "- The test checked 3 model folders, with 0 crashes (now).",
        "**60.0% of 10 repositories**",
        "Another 10.0% name a class",
        "**75.0%** are of",
    ):
        assert figure in text


def test_the_page_has_every_family():
    text = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
    there = set(re.findall(r"^\| (\S+)(?: \(\S+\))? \| \d", text, re.MULTILINE))
    missing = {family.model_type for family in families() if not family.read_only} - there
    assert not missing, f"run python -m tests.coverage, which writes the page: {sorted(missing)}"


# --- the search ------------------------------------------------------------------------------------------------------


def test_a_silent_difference_is_found(tmp_path, monkeypatch):
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


def test_trials_are_the_same_again_and_change_something():
    found = [search.trial(n, seed=3) for n in range(4)]
    assert [one.changes for one in found] == [search.trial(n, seed=3).changes for n in range(4)]
    assert any(one.changes for one in found)
    assert not [str(one) for one in found if one.found.what in ("different", "traceback")]
