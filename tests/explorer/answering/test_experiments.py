"""A second text that the model answers differently, and effects over sets of prompts, as Python has them."""

from typing import Any

import pytest

from clearhead.capture import over_prompts, prompts_in
from clearhead.errors import UserError
from clearhead.explorer.session import Session
from tests.explorer.asking import ask
from tests.explorer.traced import CONFIGS, model_of

TEXTS = ["one two three", "four two one", "two two one four three one", "three one two", "one four three"]
LINES = "clean\tcorrupt\none two three\tone four three\nfour one\tfive one"


def session(name: str) -> Session:
    return Session(model_of(CONFIGS[name]), name="model", text=TEXTS[0], data=TEXTS)


@pytest.mark.parametrize(
    "name", ["decoder_rotary_grouped", "encoder_decoder_post", "encoder_classifier", "encoder_states"]
)
def test_texts_that_differ_in_one_word_and_their_answers(name: str) -> None:
    of = session(name)
    run: dict[str, Any] = {"text": TEXTS[0], "target": "eins" if name.startswith("encoder_decoder") else None}
    said = ask(of, "propose", run=run)[0]
    assert said["same"][0] == TEXTS[0]
    network, own = of.model.network, TEXTS[0].split()

    def answer(text: str) -> int:
        result = network(*of.model.inputs(text, run["target"]))
        return int((result[0, said["position"]] if result.ndim == 3 else result[0]).argmax())

    several = said["other"] + said["same"][1:]
    assert several
    for text in several:
        words = text.split()
        assert len(words) == len(own)
        assert sum(a != b for a, b in zip(words, own, strict=True)) == 1
    if name != "encoder_states":
        others = [answer(text) != answer(TEXTS[0]) for text in said["other"]]
        assert all(others) or not any(others)
        assert all(answer(text) == answer(TEXTS[0]) for text in said["same"])


@pytest.mark.parametrize("how", ["patch", "ablate", "nodes"])
def test_a_set_has_the_numbers_of_python(how: Any, tmp_path: Any) -> None:
    of = session("decoder_rotary_grouped")
    (tmp_path / "pairs.tsv").write_text(LINES, encoding="utf-8")
    found = over_prompts(of.model, prompts_in(tmp_path / "pairs.tsv"), how)
    said = ask(of, "prompts", pairs=LINES, how=how, report=True)[0]
    assert [(one["site"], one["mean"], *one["interval"]) for one in said["effects"]] == [
        (one.site, one.mean, *one.interval) for one in found
    ]
    assert (said["n"], said["example"]) == (2, ["one two three", "one four three"])
    assert said["effects"][-1]["site"] in said["report"]


def test_sets_that_say_nothing_are_refused() -> None:
    of = session("decoder_rotary_grouped")
    for pairs, message in (
        ("clean\tcorrupt\none\tone", "expected texts that answer differently"),
        ("text\tlabel\na\tb", "expected a column 'clean'"),
        ('clean = "{A}"\ncorrupt = "{B}"\n[slots]\nA = ["one"]', "expected a list for the slot {B}"),
    ):
        with pytest.raises(UserError, match=message):
            ask(of, "prompts", pairs=pairs, how="patch")
