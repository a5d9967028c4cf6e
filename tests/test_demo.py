import builtins
import json
import os
import re
import signal
import sys
import urllib.request
import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.cells import cell_len

import clearhead.demo as demo
from clearhead.analysis.attention import CrossAttention
from clearhead.api import Model, load
from clearhead.data.sentences import Sentence, SentenceCorpus, compose, kinds
from clearhead.demo import figures as measuring
from clearhead.demo import talk
from clearhead.errors import UserError
from clearhead.explorer.session import Session
from clearhead.recipe import ModelChoice
from tests.explorer.export_fixtures import page_in, parts_of
from tests.shell import Shell
from tests.training.tiny import SMALL

CORPUS = partial(compose, n_train=240, n_valid=16, n_test=42)
KNOWN, UNKNOWN = "I love cats.", "zorblax"


@pytest.fixture(autouse=True)
def _small(empty_folder: Path, tmp_path_factory, monkeypatch) -> Iterator[None]:
    """The demo itself, made so small that it takes a second; alone in its folder, with nobody to ask."""

    def nobody(*_: object) -> None:
        raise AssertionError("nobody is there")

    monkeypatch.setattr(demo, "compose", CORPUS)
    monkeypatch.setattr(demo, "CHOICE", ModelChoice(preset="demo", stacks={**SMALL, "n_layers": 2}))
    monkeypatch.setattr(demo, "GENERATION", demo.GENERATION.model_copy(update={"max_new_tokens": 6}))
    short = {"steps": 4, "precision": "fp32", "matmul_precision": "highest", "device": "cpu", "max_tokens": 300}
    monkeypatch.setattr(demo, "TRAINING", demo.TRAINING.model_copy(update=short))
    monkeypatch.setattr(builtins, "input", nobody)
    monkeypatch.setattr(webbrowser, "open", nobody)
    monkeypatch.setattr(talk, "can_ask", lambda: False)
    monkeypatch.setattr(demo, "can_ask", lambda: False)
    with page_in(tmp_path_factory.mktemp("page") / "static"):
        yield


def on_page(path: Path) -> list[str]:
    """The texts that a reader of the page may choose from."""
    return [one["text"] for one in parts_of(path.read_text("utf-8"))["data"][0]["about"]["examples"]]


def test_from_nothing_to_figures_model_and_page(shell: Shell):
    said = shell.done("demo", "--to", "de", "--json", "--say", KNOWN, UNKNOWN, "--seed", 3)
    figures = said.json
    assert figures["language"] == "de"
    assert figures["seconds"] > 0
    assert all(0 <= figures[name] <= 1 for name in ("exact_match", "ambiguous", "it"))
    edit = figures["edit"]
    assert re.fullmatch(r"(?:en|de)coder\.blocks\.[01]\.(?:attn|cross)\.z\[h=\d\]", edit["at"])
    assert {*edit["words"]} < {"Bank", "Ufer", "er", "sie", "es"}
    assert edit["words"][0] in edit["target"]
    assert 4 <= edit["of"] <= 6
    assert f"{talk.place(edit['at'])}, and {edit['words'][0]} becomes {edit['words'][1]}" in said.err
    assert 0 <= figures["bleu"] <= 100
    assert 0 <= figures["alignment"] <= 1
    assert figures["kinds"].keys() == {*kinds()}
    assert (figures["n_train"], figures["n_test"]) == (240, 42)
    folder = Path("clearhead-demo-de")
    kept = json.loads((folder / "figures.json").read_text())
    assert {name: kept[name] for name in kept if name != "model"} == {
        name: figures[name] for name in figures if name != "translations"
    }
    model = load(folder)
    own = [one["output"] for one in figures["translations"]]
    assert own == model.translate([KNOWN, UNKNOWN])
    assert [one["unseen"] for one in figures["translations"]][1] == [UNKNOWN]
    assert "it has never seen zorblax" in said.err
    own, others = on_page(folder / "page.html")[:3], on_page(folder / "page.html")[3:]
    kind = {one.source: one.kind for one in CORPUS("de", seed=3).test}
    assert own == [KNOWN, UNKNOWN, edit["source"]]
    assert {kind[text] for text in others} == {*kinds()}
    assert max(map(cell_len, said.err.splitlines())) <= 110
    for step in (f"clearhead translate {folder} ", "clearhead train translation --source"):
        assert step in said.err
    assert model.summary().parameters == figures["parameters"]


def test_another_demo_keeps_the_earlier_model(monkeypatch):
    for i in range(2):
        monkeypatch.setattr(demo.time, "strftime", lambda _, i=i: f"{i}")
        demo.run_demo("fr", out=Path("here"), seed=i)
    assert sorted(path.name for path in Path("here").glob("run-*")) == ["run-0", "run-1"]
    assert json.loads(Path("here/best.json").read_text()) == {"checkpoint": "run-1"}
    assert load(Path("here/run-0")).translate([KNOWN])


@pytest.mark.parametrize("language", ["xx", "en", "../fr", ""])
def test_a_language_that_is_none_is_told_first(language: str):
    with pytest.raises(UserError, match=r"language: expected fr, de, es, got .*; try fr"):
        demo.run_demo(language, out=Path("here"))
    assert list(Path().iterdir()) == []


def test_a_folder_that_will_not_do_is_told_before_the_training(monkeypatch):
    monkeypatch.setattr(demo, "learn", lambda *_, **__: pytest.fail("too late"))
    Path("full").mkdir()
    Path("full/thesis.txt").write_text("mine")
    Path("file").write_text("x")
    with pytest.raises(UserError, match="full: expected a new folder or an earlier demo's"):
        demo.run_demo("fr", out=Path("full"))
    with pytest.raises(UserError, match=r"file: expected a folder to write to, got .*; try another --out"):
        demo.run_demo("fr", out=Path("file"))
    assert Path("full/thesis.txt").read_text() == "mine"


def test_ctrl_c_in_the_training_leaves_nothing(shell: Shell, monkeypatch):
    loss = demo.Translation.loss

    def stop(*args: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return loss(*args, **options)

    monkeypatch.setattr(demo.Translation, "loss", stop)
    said = shell("demo", "--out", "here")
    assert said.code == 130
    assert said.err.splitlines()[-1] == "stopped before the demo was done; nothing was kept"
    assert not Path("here").exists()


def test_ctrl_c_after_the_training_leaves_the_model(shell: Shell, monkeypatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "measure", stop)
    assert shell("demo", "--out", "here").code == 130
    assert len(load("here").translate([KNOWN])) == 1
    monkeypatch.undo()


# --- people ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus() -> SentenceCorpus:
    return CORPUS("fr")


@pytest.fixture
def model(corpus: SentenceCorpus) -> Model:
    return demo.learn(corpus, Path("learned"), seed=0)


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str | type[BaseException]) -> None:
    answers = iter(lines)

    def answer(prompt: str) -> str:
        line = next(answers)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr(builtins, "input", answer)


@pytest.mark.parametrize("end", ["", EOFError, KeyboardInterrupt])
def test_a_conversation_ends_in_three_ways(
    end: str | type[BaseException],
    model: Model,
    corpus: SentenceCorpus,
    monkeypatch,
    capsys,
):
    typed(monkeypatch, KNOWN, "a \ud800", "Blorb i love", end)
    own = talk.converse(model, replace(corpus, train=(*corpus.train, replace(corpus.train[0], source=KNOWN))))
    assert [one.source for one in own] == [KNOWN, "Blorb i love"]
    assert own[0].unseen == ()
    assert own[1].unseen[:2] == ("Blorb", "i"), "it reads capitals as they are"
    said = capsys.readouterr().err
    assert re.search(r"It knows \d+ words", said)
    assert "it has never seen Blorb, i (only I)" in said
    assert "expected text that is valid Unicode" in said, "a line it cannot read does not end it"


def test_what_was_typed_is_on_the_page(monkeypatch):
    monkeypatch.setattr(demo, "can_ask", lambda: True)
    typed(monkeypatch, KNOWN, "")
    demo.run_demo("es")
    assert on_page(Path("clearhead-demo-es/page.html"))[0] == KNOWN


def test_nobody_is_asked_without_a_terminal(monkeypatch):
    monkeypatch.undo()
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert not talk.can_ask()
    monkeypatch.setattr(sys, "stdin", None)
    assert not talk.can_ask()


@pytest.mark.parametrize(
    ("options", "opens"), [([], True), (["--no-browser"], False), (["--json"], False), (["--json", "--browser"], True)]
)
def test_it_ends_in_the_explorer_when_asked(options: list[str], opens: bool, monkeypatch, shell: Shell):
    seen: list[bytes] = []

    def look(url: str) -> bool:
        """Where nobody sees the page, the demo says how to open it and ends."""
        cookies = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        seen.append(cookies.open(url, timeout=10).read())
        return False

    monkeypatch.setattr(demo, "learn", partial(_quick, demo.learn))
    monkeypatch.setattr(demo, "open_browser", look)
    shell.done("demo", *options)
    assert len(seen) == opens
    assert all(b"explorer.css" in page for page in seen)


def test_the_explorer_has_the_run_from_its_first_update(monkeypatch, shell: Shell):
    sessions: list[Session] = []

    def remember(*args: Any, **options: Any) -> Session:
        sessions.append(Session(*args, **options))
        return sessions[-1]

    monkeypatch.setattr(demo, "Session", remember)
    monkeypatch.setattr(demo, "open_browser", lambda _: False)
    shell.done("demo")
    steps = sessions[0].passes.checkpoints.steps()
    assert (steps[0], steps[-1]) == (1, 4)


_learned: dict[str, Model] = {}


def _quick(learn: Callable[..., Model], corpus: SentenceCorpus, folder: Path, **options: Any) -> Model:
    """The same model each time."""
    if corpus.language not in _learned:
        _learned[corpus.language] = learn(corpus, folder, **options)
    return _learned[corpus.language]


# --- figures -----------------------------------------------------------------------------------------------------


def test_words_stand_in_for_their_spans(model: Model, corpus: SentenceCorpus):
    tokenizer = model.tokenizer
    sentence = next(one for one in corpus.test if len(one.spans) >= 3)
    right = measuring.right_pairs(tokenizer, sentence)
    source, target = tokenizer.offsets(sentence.source), tokenizer.offsets(sentence.target)
    for t, s in right:
        both = [
            (sentence.source[slice(*span.source)], sentence.target[slice(*span.target)])
            for span in sentence.spans
            if measuring.overlap(source[s], span.source) and measuring.overlap(target[t], span.target)
        ]
        assert both
    covered = {t for t, _ in right}
    for t, (start, end) in enumerate(target):
        inside = any(measuring.overlap((start, end), span.target) for span in sentence.spans)
        assert (t in covered) == inside
    assert measuring.overlap((0, 2), (1, 3))
    assert not measuring.overlap((0, 2), (2, 3))
    assert not measuring.overlap((2, 2), (0, 5)), "no character, nothing in common"


def test_alignment_is_the_share_of_content_tokens_read_from_their_word(
    model: Model, corpus: SentenceCorpus, monkeypatch
):
    sentences, tokenizer = corpus.test[:8], model.tokenizer

    def looks(share: Callable[[int], bool]) -> list[CrossAttention]:
        result: list[CrossAttention] = []
        number = 0
        for sentence in sentences:
            n_target, n_source = (len(tokenizer.encode(text)) + 1 for text in (sentence.target, sentence.source))
            weights = torch.zeros(2, 2, n_target, n_source)
            weights[..., -1] = 0.4  # on the end token, where no word is
            right = measuring.right_pairs(tokenizer, sentence)
            for t in sorted({t for t, _ in right}):
                if share(number):
                    weights[1, :, t, min(s for at, s in right if at == t)] = 0.6
                number += 1
            result.append(CrossAttention(weights, torch.ones(n_target)))
        return result

    for share, expected in ((lambda _: True, 1.0), (lambda _: False, 0.0), (lambda n: n % 2 == 0, 0.5)):
        monkeypatch.setattr(measuring, "cross_attention", lambda *_, share=share, **__: looks(share))
        assert measuring.alignment_accuracy(model, sentences, 1) == pytest.approx(expected, abs=0.02)
        assert measuring.alignment_accuracy(model, sentences, 0) == 0.0


def test_figures_count_by_kind(model: Model, corpus: SentenceCorpus):
    wrong = {corpus.test[0].kind}
    outputs = [sentence.target if sentence.kind not in wrong else "x" for sentence in corpus.test]
    figures = measuring.measure(model, corpus, outputs, layer=0, began=0.0)
    assert figures.kinds == {kind: float(kind not in wrong) for kind in kinds()}
    share = sum(sentence.kind not in wrong for sentence in corpus.test) / len(corpus.test)
    assert figures.exact_match == share
    perfect = [sentence.target for sentence in corpus.test]
    assert measuring.measure(model, corpus, perfect, layer=0, began=0.0).bleu == pytest.approx(100)
    few = replace(corpus, test=corpus.test[:1])
    assert measuring.measure(model, few, perfect[:1], layer=0, began=0.0).kinds == {corpus.test[0].kind: 1.0}


def other_word(sentence: Sentence) -> str:
    """The reference with the wrong word for *bank*."""
    right, wrong = sentence.choice or ("", "")
    return sentence.target.replace(right, wrong)


def test_a_choice_is_right_with_its_word_and_without_the_other(model: Model, corpus: SentenceCorpus):
    decided = [one for one in corpus.test if one.choice]
    swapped = [
        one.target.replace(*one.choice) if one.kind == "bank" and one.choice else one.target for one in corpus.test
    ]
    figures = measuring.measure(model, corpus, swapped, layer=0, began=0.0)
    others = [one for one in decided if one.kind != "it"]
    assert figures.it == 1
    assert figures.ambiguous == pytest.approx(sum(one.kind != "bank" for one in others) / len(others))


def test_the_deciding_head_is_the_one_without_which_words_flip(model: Model, corpus: SentenceCorpus, monkeypatch):
    """A network whose head 1 of the last cross-attention alone keeps a word from becoming the other."""
    bank = [one for one in corpus.test if one.kind == "bank"]
    wanted = "decoder.blocks.1.cross.z[h=1]"
    real = measuring.without

    def without(network: Any, inputs: Any, sites: Any) -> torch.Tensor:
        logits = torch.zeros_like(real(network, inputs, sites))
        for one, row in zip(bank, logits, strict=True):
            right, wrong = (model.tokenizer.encode(text) for text in (one.target, other_word(one)))
            at = next(i for i in range(len(right)) if right[i] != wrong[i])
            row[at, right[at]], row[at, wrong[at]] = (1.0, 20.0) if wanted in sites else (20.0, 1.0)
        return logits

    monkeypatch.setattr(measuring, "without", without)
    found = measuring.deciding_head(model, bank)
    assert (found.at, found.flipped, found.of) == (wanted, len(bank), len(bank))
    assert found.before[0] > 0.9 > 0.1 > found.before[1]
    assert found.after[1] > 0.9 > 0.1 > found.after[0]
    assert talk.place(wanted) == "decoder, block 1, cross-attention, head 1"
