"""Effects over a set of prompts: means of what each pair alone gives; reading, aligning, choosing, refusing."""

import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from clearhead.analysis.circuits import patched_nodes
from clearhead.analysis.sweep import Unclear
from clearhead.api.circuits import circuits_of
from clearhead.capture import Prompt, over_prompts, prompts_in
from clearhead.capture.prompts import How, read_prompt
from clearhead.data.prompts import BUNDLED, draw
from clearhead.errors import UserError
from tests.explorer.traced import CONFIGS, model_of

TEMPLATE: dict[str, Any] = {
    "clean": "one {A} two {B} then {A}", "corrupt": "one {A} two {B} then {B}", "answer": " {A}", "minus": " {B}",
    "slots": {"A": ["two", "three", "four", "five"], "B": "A"},
}  # fmt: skip
PAIRS = [("one two three", "one four three"), ("two two one four", "two three one four"), ("four one", "five one")]
TABLE = [Prompt((clean,), (corrupt,), "five", "three") for clean, corrupt in PAIRS]
CHOSEN = [Prompt((clean,), (corrupt,)) for clean, corrupt in PAIRS]
DECODER = "decoder_rotary_grouped"


@pytest.mark.parametrize("how", ["patch", "ablate", "direct", "lens", "nodes"])
@pytest.mark.parametrize("name", [DECODER, "encoder_decoder_relative", "encoder_classifier"])
def test_effects_are_the_means_over_the_pairs(name: str, how: How):
    model = model_of(CONFIGS[name])
    model.network.double()
    prompts = [*TABLE, *CHOSEN, *draw(TEMPLATE, n=6)] if name == DECODER else CHOSEN
    if name == "encoder_classifier" and how in ("lens", "direct"):
        with pytest.raises(UserError, match="expected a"):
            over_prompts(model, prompts, how)
        return
    found = over_prompts(model, prompts, how, exact=1.0)
    alone = []
    for prompt in prompts:
        with suppress(Unclear):
            alone.append({one.site: one.mean for one in over_prompts(model, [prompt], how, exact=1.0)})
    assert [one.site for one in found[:2]] == ["clean", "corrupt"]
    assert 1 < found[0].n_texts == len(alone)
    for one in found:
        own = np.array([each[one.site] for each in alone])
        assert one.mean == pytest.approx(own.mean(), abs=1e-6)
        assert own.min() - 1e-6 <= one.interval[0] <= one.interval[1] <= own.max() + 1e-6


def test_nodes_are_patched_ones():
    model = model_of(CONFIGS[DECODER])
    found = {one.site: one.mean for one in over_prompts(model, CHOSEN, "nodes", exact=1.0)}
    each = [patched_nodes(circuits_of(model, *(model.inputs(text) for text in pair))[0]) for pair in PAIRS]
    for site in each[0]:
        assert found[site] == pytest.approx(np.mean([scores[site] for scores in each]), abs=1e-5)


def test_slots_are_cells():
    """Words of several tokens are patched together; the first word that differs restores all at the bottom."""
    model = model_of(CONFIGS[DECODER])
    texts = {name: f"{{C}} {TEMPLATE[name]}" for name in ("clean", "corrupt")}
    prompts = draw({**TEMPLATE, **texts, "slots": {**TEMPLATE["slots"], "C": ["one", "one one"]}}, n=6)
    assert len({len(prompt.texts[0].split()) for prompt in prompts}) > 1
    found = {one.site: one for one in over_prompts(model, prompts, "patch", "resid")}
    assert found["decoder.blocks.0.resid_pre[t=7 {A}]"].mean == pytest.approx(1, abs=1e-4)
    assert found["decoder.blocks.0.resid_pre[t=3 {A}]"].mean == 0
    with pytest.raises(UserError, match="prompt 2: expected as many tokens as before, or slots"):
        over_prompts(model, CHOSEN, "patch", "resid")


def test_the_place_and_the_answers_that_differ():
    model = model_of(CONFIGS[DECODER])
    pair = read_prompt(model, Prompt(("one two three",), ("one two three",), " four one", " four two"))
    assert model.tokenizer.decode(pair.sides[1][0].ids[0].tolist()) == "one two three four", (
        "what both begin with is read"
    )
    assert model.tokenizer.tokens([i for (i,) in pair.ids]) == ["▁one", "▁two"]
    free = read_prompt(model, Prompt(("one two three",), ("one four three",)))
    logits = [model.network(*side)[0, free.position] for side in free.sides]
    assert [[int(one.argmax())] for one in logits] == free.ids
    with pytest.raises(UserError, match="minus: expected another answer than ' one', got ' one'"):
        read_prompt(model, Prompt(("two",), ("four",), " one", " one"))


def test_steering_moves_the_other_half():
    model = model_of(CONFIGS[DECODER])
    found = over_prompts(model, draw(TEMPLATE, n=9), "steer", "decoder.blocks.*.resid_post")
    assert [one.site for one in found[2:]] == [f"decoder.blocks.{i}.resid_post" for i in (0, 1)]
    assert all(math.isfinite(one.mean) and one.n_texts == 9 for one in found)


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_sets(name: str):
    prompts = prompts_in(name, n=60)
    assert prompts == prompts_in(name, n=60)
    assert prompts != prompts_in(name, n=60, seed=1)
    assert len({prompt.texts for prompt in prompts}) == 60
    for prompt in prompts:
        assert prompt.texts[0] != prompt.texts[1]
        assert prompt.answer
        assert prompt.minus not in (None, prompt.answer)
        assert "{" not in "".join(prompt.texts)


def test_tables_and_what_is_refused(tmp_path):
    table = tmp_path / "pairs.csv"
    table.write_text('clean,corrupt,answer,minus\n"one, two",three, four, five\n', encoding="utf-8")
    assert prompts_in(table) == [Prompt(("one, two",), ("three",), " four", " five")]
    model = model_of(CONFIGS[DECODER])
    table.write_text("text,label\na,b\nc,d\n", encoding="utf-8")
    for act, message in (
        (lambda: prompts_in("nothing"), "nothing: expected a file, or one of agreement, greater_than, ioi, pronouns"),
        (lambda: prompts_in(table), r"expected a column 'clean'"),
        (lambda: draw({**TEMPLATE, "slots": {"A": ["x", "y"]}}), r"expected a list for the slot {B}, got none"),
        (lambda: draw({**TEMPLATE, "corrupt": "{A}"}), "expected as many slots and stretches in corrupt as in clean"),
        (lambda: over_prompts(model, []), "prompts: expected several, got none"),
        (lambda: over_prompts(model, TABLE, sites="layers"), "sites: expected resid, attn, ffn, heads or all"),
        (lambda: over_prompts(model, [Prompt(("one",), ("one",))]), "expected texts that answer differently"),
    ):
        with pytest.raises(UserError, match=message):
            act()
