"""`clearhead summary`, `translate`, `generate` and `evaluate`; recipes, tokenizers and sweeps."""

import io
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

import pytest

from clearhead.api import load
from clearhead.cli import main
from clearhead.cli.judge.scores import json_of
from clearhead.cli.options import Tokenize as on_the_line
from clearhead.cli.train.sweep import combinations
from clearhead.cli.use.inputs import arriving
from clearhead.recipe import read
from clearhead.recipe.generation import GenerationConfig
from clearhead.storage import checkpoints
from clearhead.tasks.text_scores import Tokenize
from tests.conftest import ROOT
from tests.explorer.export_fixtures import page_in, parts_of
from tests.files import put
from tests.shell import Folders, Shell
from tests.small_models import PAIRS, model_of
from tests.training.tiny import write_recipe

Give = Callable[[bytes], None]


@pytest.fixture
def translator(folders: Folders) -> Path:
    return folders["translator"]


@pytest.fixture
def writer(folders: Folders) -> Path:
    return folders["writer"]


# --- summary -----------------------------------------------------------------------------------------------------


def test_summary(shell: Shell, translator: Path):
    said = shell.done("summary", "gpt2", "--json")
    assert said.json["parameters"] == 124_439_808, "standard output is the object and nothing else"
    assert "124,439,808" in said.err
    assert "124,439,808" in shell.done("summary", "gpt2").out
    weights = sum(p.numel() for p in load(translator).network.parameters())
    assert shell.done("summary", translator, "--json").json["parameters"] == weights


# --- translate ---------------------------------------------------------------------------------------------------


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    """Have some content come in through standard input."""
    with ExitStack() as opened:

        def content(content: bytes) -> None:
            put("stdin", content)
            monkeypatch.setattr(sys, "stdin", opened.enter_context(Path("stdin").open(encoding="utf-8")))

        yield content


def test_translate_texts(shell: Shell, translator: Path):
    said = shell("translate", translator, *PAIRS.source[:3], "--beams", 1)
    model = load(translator)
    greedy = model.generation.model_copy(update={"beams": 1})
    assert said == (0, "".join(f"{text}\n" for text in model.translate(PAIRS.source[:3], greedy)), "")
    as_in_recipe = shell("translate", translator, PAIRS.source[0], "one")
    assert as_in_recipe.out.splitlines() == model.translate([PAIRS.source[0], "one"]), "with its own two beams"
    assert shell("translate", translator, "--", "--help").code == 0


def test_translate_lines(shell: Shell, translator: Path, give: Give):
    give("\ufeffone two\r\n\nthree\n  \nΩ one five".encode())
    said = shell("translate", translator)
    lines = said.out.splitlines()
    assert said.code == 0
    assert [bool(line) for line in lines] == [True, False, True, False, True], "an empty line stays empty"
    assert [lines[0], lines[2]] == load(translator).translate(["one two", "three"])
    assert said.err == "note: line 5: the model has never seen Ω\n"
    give(b"")
    assert shell("translate", translator) == (0, "", "")


def test_texts_of_a_file(shell: Shell, translator: Path, writer: Path):
    put("a.en", f"{PAIRS.source[0]}\n\n{PAIRS.source[1]}\n")
    texts = (PAIRS.source[0], "", PAIRS.source[1])
    of_file = shell.done("translate", translator, "--file", "a.en").out
    assert of_file == shell.done("translate", translator, *texts).out
    shell.done("predict", translator, "--file", "a.en")
    put("a.en", "1\n")
    line = ("generate", writer, "--max-new-tokens", 3)
    assert shell.done(*line, "--file", "a.en").out == shell.done(*line, "1").out


def test_files_to_train_and_validate_on(shell: Shell, tmp_path: Path):
    recipe, files = write_recipe(tmp_path), {"a": 20, "b": 20, "v": 8}
    for name, n in files.items():
        for language in ("en", "de"):
            lines = (tmp_path / f"a.{language}").read_text(encoding="utf-8").splitlines()[:n]
            put(tmp_path / f"part-{name}.{language}", lines)
    train = ("train", recipe, "--steps", 1, "--source", "part-a.en", "part-b.en", "--target", "part-[ab].de")
    shell.done(*train, "--valid-source", "part-v.en", "--valid-target", "part-v.de")
    report = json.loads(Path("runs/tiny-1/data_report.json").read_text(encoding="utf-8"))
    assert {split["name"]: split["n_read"] for split in report["splits"]} == {"train": 40, "valid": 8}


def test_recipes_are_listed(shell: Shell):
    listed = shell("recipes").out
    assert re.search(r"\ntranslation +Your own sentence pairs: two text files, one sentence a line\.\n", listed)
    assert "clearhead train lm --text book.txt" in listed


def test_a_schema_completes_recipes(shell: Shell):
    """Every field of the recipes that come with clearhead is in it."""
    schema = json.loads(shell("recipes", "--schema").out)
    assert {ref["$ref"].rsplit("/", 1)[1] for ref in schema["anyOf"]} >= {"TranslationRecipe", "LanguageRecipe"}
    source = schema["$defs"]["ParallelFiles"]["properties"]["source"]
    assert {kind["type"] for kind in source["anyOf"]} == {"string", "array"}
    training = schema["$defs"]["Training"]["properties"]
    for name in ("lm", "translation"):
        assert read(name)["training"].keys() <= training.keys()
    assert training["clip"]["description"] == "Largest norm of the gradient of an update; None for no limit."


def test_a_tokenizer_is_trained_and_shown(shell: Shell, writer: Path):
    put("a.txt", "one two\ntwo one\n")
    assert shell.done("tokenizer", "train", "a.txt", "--out", "tok", "--kind", "words").out == "tok: 6 tokens\n"
    shown = shell.done("tokenizer", "show", "tok", "two one").lines
    assert shown[0] == "6 tokens; special tokens: <bos> 2, <eos> 3, <pad> 0, <unk> 1"
    assert shown[1].startswith("2 tokens:  ")
    assert "tokens" in shell.done("tokenizer", "show", writer, "one").out
    assert "Train a tokenizer on text files" in shell.done("tokenizer", "train", "--help").out


def test_the_lines_of_your_data_are_recipes(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each line of docs/your-data.md, up to reading all rows."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    kinds: list[str] = []

    def checked(recipe_for: Callable[..., Any], *_: object) -> None:
        kinds.append(recipe_for(is_told=False).data.train.kind)

    put("reviews.csv", "body,topic\na b,x\nc d,y\n")
    row = {"premise": "a", "hypothesis": "b", "relation": "x", "en": "a", "de": "b", "body": "c"}
    table = pa.Table.from_pylist([row])
    parquet.write_table(table, "pairs.parquet")
    for name in ("pairs.jsonl", "texts.jsonl"):
        put(name, json.dumps(row | {"translation": {"en": "a", "de": "b"}}))
    put("pairs.csv", "en,de\na b,x y\n")
    put("pairs.tsv", "1. a\tb\n2. c\td\n")
    monkeypatch.setattr("clearhead.cli.train.session.train_run", checked)
    page = (ROOT / "docs" / "your-data.md").read_text(encoding="utf-8")
    lines = [
        line
        for line in re.findall(r"`clearhead (train [^`]*)`", page)
        if not re.search("--sweep|^train [A-Z_]+$", line)
    ]
    for line in lines:
        shell.done(*shlex.split(line))
    assert len(kinds) == len(lines) >= 14
    assert set(kinds) >= {"parallel", "table", "dataset", "text", "tagged", "squad", "image_folder", "idx", "npz"}


def test_a_sweep_ends_in_one_table(shell: Shell, tmp_path: Path):
    line = ("train", write_recipe(tmp_path, steps=2), "--training.ema", 0.5, "--sweep", "training.clip=0.5,1")
    head, *rows = shell.done(*line).lines
    assert head.split() == ["clip", "bleu", "chrf", "exact_match", "perplexity", "step", "run"]
    assert sorted(row.split()[0] for row in rows) == ["0.5", "1"]
    assert {row.split()[-1] for row in rows} == {"runs/tiny-sweep-1/1", "runs/tiny-sweep-1/2"}
    saved: Any = checkpoints.load(Path("runs/tiny-sweep-1/2/step-00000002")).json["recipe.json"]
    assert (saved["training"]["clip"], saved["training"]["ema"]) == (1.0, 0.5)
    assert shell.done("curve", "runs/tiny-sweep-1/1", "runs/tiny-sweep-1/2").out == "curve.svg\n"
    assert Path("curve.svg").read_text(encoding="utf-8").lstrip().startswith("<?xml")
    assert "expected a picture such as curve.svg" in shell.refused("curve", "runs/tiny-sweep-1/1", "--out", "a.mp3")
    assert combinations(["a.b=1,2", "c.d=x"]) == [(("a.b", "1"), ("c.d", "x")), (("a.b", "2"), ("c.d", "x"))]


def test_n_best(shell: Shell, translator: Path, give: Give):
    give(b"one two\n\nthree\n")
    rows = [line.split("\t") for line in shell.done("translate", translator, "--n-best", 3, "--beams", 4).lines]
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "3", "3", "3"]
    assert rows[3] == ["2", "", ""]
    scores = [float(row[1]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True)


def test_lines_are_taken_as_they_come(monkeypatch: pytest.MonkeyPatch):
    read, write = os.pipe()
    with os.fdopen(read, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        lines = arriving()
        os.write(write, b"one\n")
        assert next(lines) == ["one"], "without waiting for more"
        os.write(write, b"two\n\nthr")
        assert next(lines) == ["two", ""]
        os.write(write, b"ee")
        os.close(write)
        assert next(lines) == ["three"]
        assert list(lines) == []


def test_a_line_that_is_not_utf8_loses_none_before_it(shell: Shell, translator: Path, give: Give):
    give(b"one\ntwo\nb\xe9d\nfour\n")
    said = shell("translate", translator)
    assert said.code == 2
    assert said.error.startswith("standard input:3: expected UTF-8, got the byte 0xE9; try")
    assert said.out.splitlines() == load(translator).translate(["one", "two"])


def test_a_line_that_is_too_long_loses_none_before_it(shell: Shell):
    model = model_of("demo", positions={"kind": "learned", "max_length": 6})
    said = shell("translate", model.save(Path("short")), "one", "one two three four five six", "two")
    assert said.code == 2
    assert said.error == "line 2: expected at most 6 tokens, where this model's positions end, got 7; cut it"
    assert said.out.splitlines() == load("short").translate(["one"])


def test_translate_writes_a_page(shell: Shell, translator: Path):
    with page_in(Path("static")):
        said = shell("translate", translator, "one two", "", "three", "--page", "page.html")
        nowhere = shell("translate", translator, "one", "--page", "nowhere/page.html")
        rounded = shell("translate", translator, "one", "--page", "page.html", "--int8")
        shutil.rmtree("static")
        unbuilt = shell("translate", translator, "one", "--page", "page.html")
    assert said.err == "page: page.html\n"
    about = parts_of(Path("page.html").read_text(encoding="utf-8"))["data"][0]["about"]
    assert [one["text"] for one in about["examples"]] == ["one two", "three"]
    for early in (nowhere, rounded, unbuilt):
        assert (early.code, early.out) == (2, ""), "told before the work is done"
    assert "expected a file in a folder that is there, got no nowhere" in nowhere.error
    assert "expected weights as they were stored, got --int8" in rounded.error
    assert "expected the explorer's built page" in unbuilt.error


# --- generate ----------------------------------------------------------------------------------------------------


def test_generate(shell: Shell, writer: Path):
    model = load(writer)
    config = GenerationConfig(max_new_tokens=9, temperature=1.5)
    texts = {seed: model.generate("one", config.model_copy(update={"seed": seed})) for seed in range(20)}
    seed = max(texts, key=lambda seed: len(texts[seed]))
    line = ("generate", writer, "one", "--max-new-tokens", 9, "--temperature", 1.5, "--seed", seed)
    assert shell(*line) == (0, f"one{texts[seed]}\n", "")
    word = texts[seed].split()[2]
    assert shell(*line, "--stop", "@@", word).out == f"one{texts[seed].partition(word)[0]}\n"
    assert "never seen Ω" in shell("generate", writer, "Ω", "--max-new-tokens", 1).err


def test_generate_shows_each_piece_at_once(writer: Path, monkeypatch: pytest.MonkeyPatch):
    class Paper(io.StringIO):
        shown: list[str]

        def flush(self) -> None:
            self.shown.append(self.getvalue())

    paper = Paper()
    paper.shown = []
    monkeypatch.setattr(sys, "stdout", paper)
    main(["generate", str(writer), "one", "--max-new-tokens", "6", "--temperature", "1"])
    assert paper.shown[0] == "one", "the prompt, before the first token"
    assert len(set(paper.shown)) >= 5


# --- evaluate ----------------------------------------------------------------------------------------------------


def test_evaluate_files(shell: Shell, translator: Path, writer: Path):
    outputs = load(translator).translate(PAIRS.source)
    put("a.en", PAIRS.source)
    put("a.de", [*outputs[:12], *["x"] * 12])
    line = ("evaluate", translator, "--source", "a.en", "--target", "a.de")
    figures = shell.done(*line, "--json").json
    assert figures["exact_match"] == 0.5
    assert figures.keys() == {"bleu", "chrf", "exact_match", "perplexity"}
    plain = shell.done(*line)
    assert re.search(r"^bleu +\d+\.\d+  nrefs:1\|case:mixed", plain.out, re.MULTILINE)
    assert "exact_match            0.5000  0 to 1" in plain.out
    assert f"{translator} on a.en and a.de:" in plain.err
    put("book", PAIRS.source * 6)
    figures = shell.done("evaluate", writer, "--text", "book", "--json").json
    assert figures.keys() == {"loss", "perplexity", "bits_per_byte"}


def test_evaluate_tokenizes_by_the_script_of_the_target(shell: Shell, translator: Path):
    put("a.en", "one\ntwo\n")
    put("a.ja", "猫がいます。\n犬もいます。\n")
    line = ("evaluate", translator, "--source", "a.en", "--target", "a.ja")
    assert "bleu_char" in shell.done(*line, "--json").json
    plain = shell.done(*line, "--tokenize", "zh").out
    assert re.search(r"^bleu_zh +\d+\.\d+  nrefs:1\|case:mixed\|eff:\w+\|tok:zh", plain, re.MULTILINE)
    both = shell.done(*line, "--tokenize", "13a", "--moses", "ja", "--json").json
    assert {"bleu", "bleu_moses_lower"} <= both.keys()


def test_the_line_has_the_tokenizers_of_a_recipe():
    assert get_args(on_the_line) == get_args(Tokenize)


def test_evaluate_goes_by_the_recipe_of_a_run(shell: Shell, tmp_path: Path):
    chosen = ("--evaluation.tokenize", "intl")
    said = shell.done("train", write_recipe(tmp_path), "--steps", 2, "--out", "run", *chosen, "--json")
    assert "bleu_intl" in said.json
    assert "BLEU" in said.err
    assert "(cased, intl" in said.err
    for more, name in (
        ((), "bleu_intl"),
        (("--source", "a.en", "--target", "a.de"), "bleu_intl"),
        (("--tokenize", "auto"), "bleu"),
    ):
        assert name in shell.done("evaluate", "run", *more, "--json").json


def test_json_has_no_infinity():
    figures = json_of({"a": 1.5, "b": float("inf"), "c": float("nan"), "d": 3})
    assert figures == {"a": 1.5, "b": None, "c": None, "d": 3}
