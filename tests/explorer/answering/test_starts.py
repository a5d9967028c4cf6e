"""A page begins with something that the model can read."""

import json
from collections.abc import Iterator

import numpy as np
import pytest

from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.explorer.answering import opened
from clearhead.explorer.answering.opened import CONTINUED, MOST_EXAMPLES, SENTENCE, starts
from clearhead.explorer.session import Session
from clearhead.recipe.places import METRICS
from clearhead.recipe.tokenizers import Words
from clearhead.text.tokenizers import Tokenizer
from tests.explorer.asking import ask
from tests.explorer.test_session import save
from tests.explorer.traced import CONFIGS, TOKENIZER, model_of
from tests.small_sounds import sound, speech_model

DECODER = CONFIGS["decoder_pre_learned"]


def test_what_it_was_opened_with():
    start, examples, images = starts(model_of(CONFIGS["encoder_decoder_post"]), None, "one", "eins", None)
    assert (start.text, start.target, list(images)) == ("one", "eins", [])
    assert examples == [start]


def test_words_that_the_tokenizer_knows():
    start, _, _ = starts(model_of(DECODER), None, None, None, None)
    assert TOKENIZER.unknown(start.text) == []
    assert start.text != SENTENCE
    assert len(TOKENIZER.encode(start.text)) > 2


def test_a_decoder_that_knows_english_goes_on_with_a_text_that_decides_its_next_word():
    model = Model(model_of(DECODER).network, Tokenizer.train([SENTENCE, *CONTINUED], Words()))
    start, examples, _ = starts(model, None, None, None, None)
    assert [example.text for example in examples] == list(CONTINUED)
    assert start == examples[0]


def test_sentences_of_the_run(tmp_path):
    save(model_of(DECODER), tmp_path, 1)
    samples = [{"source": f"one {i}", "output": "", "reference": "eins"} for i in range(20)]
    events = [{"kind": "evaluated", "step": 1, "scores": {}, "samples": [*samples, samples[0], {"source": "x" * 999}]}]
    (tmp_path / METRICS).write_text("".join(json.dumps(event) + "\n" for event in events))
    start, examples, _ = starts(model_of(DECODER), tmp_path, None, None, None)
    assert [example.text for example in examples] == [f"one {i}" for i in range(MOST_EXAMPLES)]
    assert start == examples[0]


def test_a_classifier_begins_with_the_text_of_its_data_that_one_word_decides(monkeypatch):
    texts = ["a film that I saw", "a film that never was dull", "short", ("a pair", "of texts"), "a film with music"]
    model = model_of(CONFIGS["encoder_classifier"])
    sure, unsure = [("yes", 0.9), ("no", 0.1)], [("no", 0.8), ("yes", 0.2)]
    monkeypatch.setattr(opened, "own_source", lambda _: (iter(texts), "valid"))
    monkeypatch.setattr(Model, "classify", lambda _, some: [sure if "never" in text else unsure for text in some])
    start, examples, _ = starts(model, None, None, None, None)
    assert start == examples[0]
    assert [example.text for example in examples] == [texts[1], texts[0]], "and the surest of each label"


def test_texts_of_a_classifier_are_tried_until_one_word_turns_one(monkeypatch: pytest.MonkeyPatch):
    rows = [["dull", *map(str, range(i, i + 5))] for i in range(10)] + [["never", "was", "a", "film", "bad"]] * 10
    rows += [["no", "one", "reads", "this", "row"]]

    def classified(text: str) -> list[tuple[str, float]]:
        assert "row" not in text
        yes = 0.3 if text == "was a film bad" else 0.9 if {"dull", "never"} & {*text.split()} else 0.51
        return sorted([("yes", yes), ("no", 1 - yes)], key=lambda pair: -pair[1])

    monkeypatch.setattr(opened, "_usual", lambda model: rows)
    monkeypatch.setattr(Model, "classify", lambda _, some: list(map(classified, some)))
    assert opened._decided(model_of(CONFIGS["encoder_classifier"]))[0].text == "never was a film bad"


def test_a_bad_row_of_its_data_does_not_keep_a_page_from_opening(monkeypatch):
    def rows() -> Iterator[str]:
        yield "a film that never was dull"
        raise UserError("train.csv:2: expected 2 cells, got 3")

    monkeypatch.setattr(opened, "own_source", lambda _: (rows(), "train"))
    assert starts(model_of(CONFIGS["encoder_classifier"]), None, None, None, None)[0].text


def test_a_picture_where_none_was_given():
    model = model_of(CONFIGS["vision"])
    start, _, images = starts(model, None, None, None, None)
    assert start.image == "example:0"
    model.logits(images[0])
    mine = np.zeros((5, 5, 3), np.uint8)
    assert starts(model, None, None, None, mine)[2][0] is mine


def test_a_model_of_sounds_that_is_not_trained_says_so() -> None:
    model, told = speech_model(), "This model is not trained: its answers mean nothing."
    for network_is_new in (True, False):
        if not network_is_new:
            for name, one in model.network.named_parameters():
                if name.endswith("norm.weight"):
                    one.data.fill_(0.9)
        of = Session(model, name="model", image=sound(1, 0.7))
        assert (told in ask(of, "run", run=of.start.model_dump())[0]["notes"]) is network_is_new
