"""The overview as the page asks for it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from clearhead.analysis.overview import Moved, Overview
from clearhead.api import Model
from clearhead.explorer.answering import opened, overview
from clearhead.explorer.recording.facts import Token
from clearhead.explorer.session import Session
from clearhead.model.fast.int8 import quantized
from clearhead.trace import Address
from tests.explorer.asking import ask, last, session_of, start
from tests.explorer.traced import CONFIGS, model_of


@pytest.mark.parametrize("name", CONFIGS)
def test_the_page_gets_every_part(name: str):
    session = session_of(name)
    run = start(session)
    heads, tensors = ask(session, "overview", run=run, part="heads")
    assert len(heads["at"]) == len(tensors["moved"]) == len(tensors["p"])
    decided = heads["decided"]
    assert decided["moved"] == pytest.approx(float(tensors["moved"].max()))
    length = len(ask(session, "run", run=run)[0]["tokens"][last(name)])
    assert 0 <= heads["position"] < length
    if heads["kind"] != "vector":
        best = heads["answers"][0]
        off = {**run, "edits": [{"at": heads["at"][decided["head"]], "do": "zero"}]}
        without, _ = ask(session, "overview", run=off, part="heads", position=heads["position"])
        shares = {one["id"]: one["p"] for one in without["answers"]}
        expected = float(tensors["p"][decided["head"]])
        assert shares.get(best["id"], expected) == pytest.approx(expected, abs=1e-5)
    curves, _ = ask(session, "overview", run=run, part="curves")
    assert all(one["weight"] >= 0.02 for one in curves["curves"])
    for part in ("lanes", "ffn"):
        about, tensors = ask(session, "overview", run=run, part=part)
        for stack, moved in tensors.items():
            assert moved.shape == (2 + (part == "lanes"), len(about["stacks"][stack]))
            assert bool(((moved >= 0) & (moved <= 1)).all())


def test_a_rounded_model_has_no_overview():
    model = model_of(CONFIGS["decoder_pre_learned"])
    assert "overview" in ask(Session(model, name="whole", text="one two"), "about")[0]["answers"]
    rounded = Session(Model(quantized(model.network), model.tokenizer), name="rounded", text="one two")
    assert "overview" not in ask(rounded, "about")[0]["answers"]


def test_a_word_is_tried_everywhere_that_it_stands(monkeypatch: pytest.MonkeyPatch):
    """If no word decides alone, each is left out wherever it stands before the answer."""
    tried, off = list[str](), Overview.off
    monkeypatch.setattr(Overview, "off", lambda seen, sites: tried.extend(sites) or off(seen, sites))
    model = model_of(CONFIGS["decoder_pre_learned"])
    session = Session(model, name="words", text="two one three one two one three one")
    ask(session, "overview", run=start(session), part="heads")
    sets = {tuple(sorted(Address.parse(one).index[0][1] for one in site.split())) for site in tried}
    assert sets >= {(0, 4), (1, 3, 5), (2, 6)}


def test_a_gap_is_a_word_that_the_model_knows(monkeypatch: pytest.MonkeyPatch):
    """Of each text the surest of the words that the model fills in rightly; first where another answer leads too."""
    model = model_of(CONFIGS["encoder_masked_language"])
    sure = {"one <mask> three": 0.4, "<mask> two three": 0.9, "Two <mask> one": 0.7}
    monkeypatch.setattr(opened, "_usual", lambda model: [["one", "two", "three"], ["Two", "two", "one"], ["three"]])
    monkeypatch.setattr(opened, "fill", lambda model, ids: [[("two", sure.get(ids, 0.1))]])
    monkeypatch.setattr(type(model.tokenizer), "encode", lambda self, text: text)
    for others, wanted in (
        ({}, ["Two <mask> one", "one <mask> three"]),
        ({"Two <mask> one": 0.3, "one <mask> three": 0.5}, ["one <mask> three", "Two <mask> one"]),
    ):
        monkeypatch.setattr(opened, "_other", lambda model, text, others=others: others.get(text, 0.0))
        assert [run.text for run in opened._masked(model, "<mask>")] == wanted


def test_another_answer_leads_in_a_gap_without_a_word():
    """As the page measures it, with the first states of one other word := 0."""
    model = model_of(CONFIGS["encoder_masked_language"])
    text = f"one {opened.mask_of(model)} three"
    session = Session(model, name="gap", text=text)
    run, others = start(session), list[float]()
    best = ask(session, "overview", run=run, part="heads", position=1)[0]["answers"][0]["id"]
    for t in (0, 2):
        off = {**run, "edits": [{"at": f"encoder.blocks.0.resid_pre[t={t}]", "do": "zero"}]}
        first = ask(session, "overview", run=off, part="heads", position=1)[0]["answers"][0]
        others += [first["p"]] if first["id"] != best else []
    assert opened._other(model, text) == pytest.approx(max(others, default=0.0), abs=1e-5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("det ##ox _is", [[0, 1], [2]]),
        ("▁L ily ▁has ▁dog s .", [[0, 1], [2], [3, 4], [5]]),
        ("n ' entre _qu ' il", [[0, 1], [2], [3, 4], [5]]),
        ("<s> <en> ▁L ily .", [[0, 1], [2, 3], [4]]),
        ("one _two .", []),
        ("t o b e", []),
        ("我们 喜欢 he", []),
    ],
)
def test_the_pieces_of_a_word_are_left_out_together(text: str, words: list[list[int]]):
    """By the rule of the page; ui/test/views/overview.test.ts has the same texts."""
    tokens, end = list[Token](), 0
    for i, piece in enumerate(text.split()):
        start = end + piece.startswith(("▁", "_"))
        end = start + len(piece.removeprefix("##").lstrip("▁_"))
        tokens.append(Token(id=i, text=piece.lstrip("_"), span=None if piece[0] == "<" else (start, end)))
    assert overview._words_of(tokens) == words


def test_no_more_words_than_another_answer_needs():
    """Of a, b and c without b another answer leads too, and without a as well; of two words both are needed."""
    off = {"a b": 0.6, "a c": 0.3, "b c": 0.4}

    def measured(sites: list[str]) -> list[Moved]:
        return [Moved(at, 0.5, off[at], 1, 1 - off[at]) for at in sites]

    whole, seen = Moved("a b c", 0.9, 0.1, 1, 0.9), cast(Any, SimpleNamespace(off=measured))
    assert overview._fewest(whole, ["a", "b", "c"], seen).at == "a c"
    assert overview._fewest(whole, ["a", "b"], seen) is whole
