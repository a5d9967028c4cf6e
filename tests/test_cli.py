import errno
import inspect
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TextIO, get_args

import pytest
import torch

from clearhead.api import load
from clearhead.cli import main
from clearhead.cli.commands import application
from clearhead.cli.judge.scores import json_of
from clearhead.cli.options import Tokenize as on_the_line
from clearhead.cli.train.sweep import combinations
from clearhead.cli.use.inputs import arriving
from clearhead.errors import UserError
from clearhead.recipe import read
from clearhead.recipe.generation import GenerationConfig
from clearhead.storage import checkpoints
from clearhead.tasks.text_scores import Tokenize
from clearhead.tasks.translation import Translation
from clearhead.training.events import Stepped
from clearhead.training.metrics_log import read_metrics
from tests import processes
from tests.conftest import ROOT
from tests.explorer.export_fixtures import page_in, parts_of
from tests.small_models import PAIRS, model_of
from tests.training.tiny import write_recipe

Give = Callable[[bytes], None]
COMMANDS = (
    *("demo", "train", "resume", "watch", "recipes", "curve", "translate", "generate", "explore", "serve"),
    *("evaluate", "compare", "wrong-labels", "summary", "check", "export", "push", "plan", "profile"),
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In an empty folder, without waiting for the disk, and with the signal handlers as they were."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    assert {number: signal.getsignal(number) for number in handlers} == handlers


class Said(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that a user's mistake gives."""
        last = self.err.splitlines()[-1]
        assert last.startswith("error: ")
        assert "Traceback" not in self.err
        return last.removeprefix("error: ")


class Shell:
    """Runs commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: object) -> Said:
        self.capsys.readouterr()
        code: Any = 0
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            code = end.code
        return Said(code, *self.capsys.readouterr())


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_of("demo").save(tmp_path_factory.mktemp("models") / "translator")


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_of("nano").save(tmp_path_factory.mktemp("models") / "writer")


def run_python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return processes.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True)


# --- help and usage ----------------------------------------------------------------------------------------------


def test_help_needs_no_torch():
    code = "import sys; from clearhead.cli import main; main(['--help']); assert 'torch' not in sys.modules"
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_option(shell: Shell, command: str):
    said = shell(command, "--help")
    assert (said.code, said.err) == (0, "")
    assert max(map(len, said.out.splitlines())) <= 110
    function = application(command)[command].default_command
    parameters = inspect.signature(function).parameters  # pyrefly: ignore[bad-argument-type]
    documented = re.findall(r"^    (\w+): ", inspect.getdoc(function) or "", re.MULTILINE)
    for name, one in parameters.items():  # What several commands share is described in clearhead/cli/options.py.
        if any(getattr(more, "help", None) for more in getattr(one.annotation, "__metadata__", ())):
            documented.append(name)
    assert sorted(documented) == sorted(parameters)
    assert re.search(r"--\S+( [A-Z]+)?(\.\.\.)?  +\S", said.out)


def test_version(shell: Shell):
    from clearhead import __version__

    assert shell("--version") == (0, f"{__version__}\n", "")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("bogus", 'Unknown command "bogus"'),
        ("train", "RECIPE requires an argument. See clearhead train --help"),
        ("translate", "MODEL requires an argument. See clearhead translate --help"),
        ("summary gpt2 --bogus", "Unknown option: --bogus. See clearhead summary --help"),
        ("summary gpt2 --batch x", 'unable to convert "x" into int'),
        ("summary gpt3", "try gpt2"),
        ("summary gpt2 --batch 0", "batch: expected 1 or more, got 0"),
        (
            "train recipe --training.bogus 1",
            "recipe: expected a recipe file or name, found none; try one of chat, class",
        ),
        ("train lm --training.stpes 1", "lm:training.stpes: no such field; did you mean steps?"),
        ("train translation --model.presett gpt2", "model.presett: no such field; did you mean preset?"),
        ("train lm --stepz 1", "--stepz: no such option; did you mean --steps?"),
        ("train lm --clip 1", "--clip: no such option; did you mean --training.clip?"),
        ("train lm --bogus 1", "--bogus: no such option; write a field of the recipe as --TABLE.FIELD VALUE"),
        ("train lm --traning.clip 1", "--traning.clip: no such option; did you mean --training.clip?"),
        ("train lm --trainig.clpi 1", "--trainig.clpi: no such option; did you mean --training.clip?"),
        ("train lm --trainng.optimizer.lr 1", "did you mean --training.optimizer.lr?"),
        ("train lm --traning-save-every 1", "did you mean --training.save_every?"),
        ("train lm --modl.stacks.n_heads 1", "did you mean --model.stacks.n_heads?"),
        ("train lm --training.lr 1 --text a", "lm:training.lr: no such field; did you mean training.optimizer.lr?"),
        ("train lm --model.n_heads 8 --text a", "lm:model.n_heads: no such field; did you mean model.stacks.n_heads?"),
        ("train lm --data.x " + "[" * 100_000, "--data.x: expected at most 100 levels of tables and lists, got more"),
        ("train lm --training.clip", "--training.clip: expected a value after it, got none"),
        ("train lm --training.clip --training.steps 3", "--training.clip: expected a value after it, got none"),
        ("train lm 3", "3: expected a field such as --training.clip, got a value"),
        ("train lm", "lm: expected a text, got none; give --text FILE"),
        ("train lm --source a", "lm: expected a text, got --source; give --text FILE"),
        ("train translation --source a", "got --source; give --source FILE --target FILE"),
        ("train translation --text a", "got --text; give --source FILE --target FILE"),
        ("train lm --text a --source b", "lm: expected a text, got --source and --text; give --text FILE"),
        ("train lm --text a --device tpu", 'Invalid value "tpu" for --device. Choose from: "auto", "cpu"'),
        ("train lm --text a --steps -1", "lm:training.steps: expected greater than 0, got -1"),
        ("train lm --text a --model.stacks.n_heads 7", "n_heads=7 must divide d_model=128"),
        ("train lm --text a --model.stacks.n_head 8", "n_head: no such field; did you mean n_heads?"),
        ("train image_classification --data a --augment.shfit 1", "augment.shfit: no such field; did you mean shift?"),
        ("train lm --text nowhere.txt", "nowhere.txt: expected a file, got none"),
        ("resume nowhere", "nowhere: expected a run with a checkpoint, found none"),
        ("translate nowhere hello", "nowhere: expected a local folder, or the whole model in the hub's cache"),
        ("translate ./nowhere hello", "./nowhere: expected a folder with a model, found nothing"),
        ("check nowhere", "nowhere: expected a local folder, or the whole model in the hub's cache"),
        ("export nowhere --to onnx", "nowhere: expected a local folder, or the whole model in the hub's cache"),
        ("translate . hello", ".: expected a folder with a model, got an empty one; check the path"),
        ("demo --to zz", "expected one that CLDR knows well, got 'zz'"),
    ],
)
def test_a_mistake_is_one_line(shell: Shell, line: str, says: str):
    said = shell(*line.split())
    assert said.code == 2
    assert says in said.error
    assert said.out == ""


def test_debug_shows_where(shell: Shell):
    said = shell("summary", "--debug", "gpt3")
    assert said.code == 2
    assert "Traceback" in said.err
    assert said.err.splitlines()[-1].startswith("error: preset: expected")
    assert "Traceback" not in shell("translate", ".", "--", "--debug").err, "after -- it is a text"


def test_a_bug_of_ours_is_not_hidden(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("clearhead.model.summary.summarize", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        shell("summary", "gpt2")


# --- summary -----------------------------------------------------------------------------------------------------


def test_summary(shell: Shell, translator: Path):
    said = shell("summary", "gpt2", "--json")
    assert json.loads(said.out)["parameters"] == 124_439_808, "standard output is the object and nothing else"
    assert "124,439,808" in said.err
    assert "124,439,808" in shell("summary", "gpt2").out
    weights = sum(p.numel() for p in load(translator).network.parameters())
    assert json.loads(shell("summary", translator, "--json").out)["parameters"] == weights


# --- translate ---------------------------------------------------------------------------------------------------


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    """Have some content come in through standard input."""
    with ExitStack() as opened:

        def content(content: bytes) -> None:
            Path("stdin").write_bytes(content)
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


def test_texts_of_a_file(shell: Shell, translator: Path, writer: Path, tmp_path: Path):
    file = tmp_path / "a.en"
    file.write_text(f"{PAIRS.source[0]}\n\n{PAIRS.source[1]}\n", encoding="utf-8")
    texts = (PAIRS.source[0], "", PAIRS.source[1])
    assert shell("translate", translator, "--file", file).out == shell("translate", translator, *texts).out
    assert shell("predict", translator, "--file", file).code == 0
    for command in ("translate", "predict"):
        assert "got a text on the line too" in shell(command, translator, "a", "--file", file).error
        assert "none.en: expected a file, got none" in shell(command, translator, "--file", "none.en").error
    file.write_text("1\n", encoding="utf-8")
    line = ("generate", writer, "--max-new-tokens", 3)
    assert shell(*line, "--file", file).out == shell(*line, "1").out
    assert "got a prompt on the line too" in shell(*line, "a", "--file", file).error


def test_files_to_train_and_validate_on(shell: Shell, tmp_path: Path):
    recipe, files = write_recipe(tmp_path), {"a": 20, "b": 20, "v": 8}
    for name, n in files.items():
        for language in ("en", "de"):
            lines = (tmp_path / f"a.{language}").read_text(encoding="utf-8").splitlines()[:n]
            (tmp_path / f"part-{name}.{language}").write_text("\n".join(lines), encoding="utf-8")
    train = ("train", recipe, "--steps", 1, "--source", "part-a.en", "part-b.en", "--target", "part-[ab].de")
    valid = ("--valid-source", "part-v.en", "--valid-target", "part-v.de")
    assert shell(*train, *valid).code == 0
    report = json.loads(Path("runs/tiny-1/data_report.json").read_text(encoding="utf-8"))
    assert {split["name"]: split["n_read"] for split in report["splits"]} == {"train": 40, "valid": 8}
    said = shell(*train, *valid[:2]).error
    assert said.endswith("got --valid-source; give --valid-source FILE --valid-target FILE")
    assert "--valid-text" in shell(*train, "--valid-text", "a.en").error


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


def test_a_tokenizer_is_trained_and_shown(shell: Shell, writer: Path, tmp_path: Path):
    (tmp_path / "a.txt").write_text("one two\ntwo one\n", encoding="utf-8")
    made = shell("tokenizer", "train", "a.txt", "--out", "tok", "--kind", "words")
    assert (made.code, made.out) == (0, "tok: 6 tokens\n")
    shown = shell("tokenizer", "show", "tok", "two one").out.splitlines()
    assert shown[0] == "6 tokens; special tokens: <bos> 2, <eos> 3, <pad> 0, <unk> 1"
    assert shown[1].startswith("2 tokens:  ")
    assert "tokens" in shell("tokenizer", "show", writer, "one").out
    assert "expected a new folder" in shell("tokenizer", "train", "a.txt", "--out", "tok").error
    line = ("tokenizer", "train", "a.txt", "--out", "new", "--vocab-size")
    assert shell(*line, 3).error == "tokenizer:vocab_size: expected greater than 4, got 3"
    assert "no.txt: expected a file, got none" in shell("tokenizer", "train", "no.txt", "--out", "new").error
    assert "Train a tokenizer on text files" in shell("tokenizer", "train", "--help").out


def test_the_lines_of_your_data_are_recipes(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each line of docs/your-data.md, up to reading all rows."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    kinds: list[str] = []

    def checked(recipe_for: Callable[[bool], Any], *_: object) -> None:
        kinds.append(recipe_for(False).data.train.kind)

    Path("reviews.csv").write_text("body,topic\na b,x\nc d,y\n", encoding="utf-8")
    row = {"premise": "a", "hypothesis": "b", "relation": "x", "en": "a", "de": "b", "body": "c"}
    table = pa.Table.from_pylist([row])
    parquet.write_table(table, "pairs.parquet")
    for name in ("pairs.jsonl", "texts.jsonl"):
        Path(name).write_text(json.dumps(row | {"translation": {"en": "a", "de": "b"}}), encoding="utf-8")
    Path("pairs.csv").write_text("en,de\na b,x y\n", encoding="utf-8")
    Path("pairs.tsv").write_text("1. a\tb\n2. c\td\n", encoding="utf-8")
    monkeypatch.setattr("clearhead.cli.train.session.train_run", checked)
    page = (ROOT / "docs" / "your-data.md").read_text(encoding="utf-8")
    lines = [line for line in re.findall(r"`clearhead (train [^`]*)`", page) if "--sweep" not in line]
    for line in lines:
        assert shell(*shlex.split(line)).code == 0, line
    assert len(kinds) == len(lines) >= 14
    assert set(kinds) >= {"parallel", "table", "dataset", "text", "tagged", "squad", "image_folder", "idx", "npz"}


def test_a_sweep_ends_in_one_table(shell: Shell, tmp_path: Path):
    line = ("train", write_recipe(tmp_path, steps=2), "--training.ema", 0.5, "--sweep")
    said = shell(*line, "training.clip=0.5,1")
    assert said.code == 0
    head, *rows = said.out.splitlines()
    assert head.split() == ["clip", "bleu", "chrf", "exact_match", "perplexity", "step", "run"]
    assert sorted(row.split()[0] for row in rows) == ["0.5", "1"]
    assert {row.split()[-1] for row in rows} == {"runs/tiny-sweep-1/1", "runs/tiny-sweep-1/2"}
    saved: Any = checkpoints.load(Path("runs/tiny-sweep-1/2/step-00000002")).json["recipe.json"]
    assert (saved["training"]["clip"], saved["training"]["ema"]) == (1.0, 0.5)
    assert shell("curve", "runs/tiny-sweep-1/1", "runs/tiny-sweep-1/2").out == "curve.svg\n"
    assert Path("curve.svg").read_text(encoding="utf-8").lstrip().startswith("<?xml")
    assert "expected a picture such as curve.svg" in shell("curve", "runs/tiny-sweep-1/1", "--out", "a.mp3").error
    assert "expected a run with a checkpoint" in shell("curve", "nowhere").error
    wrong = shell(*line, "training.clip=1,-1")
    assert "training.clip: expected greater than 0, got -1" in wrong.error
    assert not Path("runs/tiny-sweep-2").exists(), "all are checked before the first begins"
    assert "expected a field with its values" in shell(*line, "training.clip").error
    assert combinations(["a.b=1,2", "c.d=x"]) == [(("a.b", "1"), ("c.d", "x")), (("a.b", "2"), ("c.d", "x"))]


def test_a_file_of_data_is_no_recipe(shell: Shell, tmp_path: Path):
    (tmp_path / "pairs.txt").write_text("one\teins\n", encoding="utf-8")
    said = shell("train", "pairs.txt").error
    assert said.startswith("pairs.txt: expected TOML, got ")
    assert "give a recipe before a file of data" in said


def test_n_best(shell: Shell, translator: Path, give: Give):
    give(b"one two\n\nthree\n")
    said = shell("translate", translator, "--n-best", 3, "--beams", 4)
    rows = [line.split("\t") for line in said.out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "3", "3", "3"]
    assert rows[3] == ["2", "", ""]
    scores = [float(row[1]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True)
    assert "n_best=9 must be at most beams=2" in shell("translate", translator, "one", "--n-best", 9).error


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
    assert shell("generate", writer, "one", "--top-p", 2).error.startswith("generation:top_p: expected less than")


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


def test_each_command_says_what_its_model_is_for(shell: Shell, translator: Path, writer: Path):
    said = shell("generate", translator, "one")
    assert (said.code, said.out) == (2, ""), "not even the prompt"
    assert "try clearhead translate" in said.error
    assert "try clearhead generate" in shell("translate", writer, "one").error
    Path("a").write_text("one two\n" * 20)
    assert "give --source FILE --target FILE" in shell("evaluate", translator, "--text", "a").error
    assert "got --source; give --source FILE --target FILE" in shell("evaluate", translator, "--source", "a").error
    assert "give --text FILE" in shell("evaluate", writer, "--source", "a", "--target", "a").error
    assert "expected a text, got none; give --text FILE" in shell("evaluate", writer).error
    said = shell("evaluate", writer, "--text", "a", "--beams", 3)
    assert said.error == f"--beams: expected a model of another task, got {writer}; leave it out"


# --- evaluate ----------------------------------------------------------------------------------------------------


def test_evaluate_files(shell: Shell, translator: Path, writer: Path):
    outputs = load(translator).translate(PAIRS.source)
    Path("a.en").write_text("\n".join(PAIRS.source), encoding="utf-8")
    Path("a.de").write_text("\n".join([*outputs[:12], *["x"] * 12]), encoding="utf-8")
    said = shell("evaluate", translator, "--source", "a.en", "--target", "a.de", "--json")
    assert said.code == 0
    figures = json.loads(said.out)
    assert figures["exact_match"] == 0.5
    assert figures.keys() == {"bleu", "chrf", "exact_match", "perplexity"}
    plain = shell("evaluate", translator, "--source", "a.en", "--target", "a.de")
    assert re.search(r"^bleu +\d+\.\d+  nrefs:1\|case:mixed", plain.out, re.MULTILINE)
    assert "exact_match            0.5000  0 to 1" in plain.out
    assert f"{translator} on a.en and a.de:" in plain.err
    Path("book").write_text("\n".join(PAIRS.source * 6))
    said = shell("evaluate", writer, "--text", "book", "--json")
    assert json.loads(said.out).keys() == {"loss", "perplexity", "bits_per_byte"}


def test_evaluate_tokenizes_by_the_script_of_the_target(shell: Shell, translator: Path):
    Path("a.en").write_text("one\ntwo\n", encoding="utf-8")
    Path("a.ja").write_text("猫がいます。\n犬もいます。\n", encoding="utf-8")
    files = ("--source", "a.en", "--target", "a.ja")
    assert "bleu_char" in json.loads(shell("evaluate", translator, *files, "--json").out)
    plain = shell("evaluate", translator, *files, "--tokenize", "zh")
    assert re.search(r"^bleu_zh +\d+\.\d+  nrefs:1\|case:mixed\|eff:\w+\|tok:zh", plain.out, re.MULTILINE)
    both = json.loads(shell("evaluate", translator, *files, "--tokenize", "13a", "--moses", "ja", "--json").out)
    assert {"bleu", "bleu_moses_lower"} <= both.keys()
    assert 'Choose from: "auto", "13a"' in shell("evaluate", translator, *files, "--tokenize", "x").error


def test_the_line_has_the_tokenizers_of_a_recipe():
    assert get_args(on_the_line) == get_args(Tokenize)


def test_evaluate_goes_by_the_recipe_of_a_run(shell: Shell, tmp_path: Path):
    chosen = ("--evaluation.tokenize", "intl")
    said = shell("train", write_recipe(tmp_path), "--steps", 2, "--out", "run", *chosen, "--json")
    assert "bleu_intl" in json.loads(said.out)
    assert "BLEU" in said.err
    assert "(cased, intl" in said.err
    assert "bleu_intl" in json.loads(shell("evaluate", "run", "--json").out)
    files = ("--source", "a.en", "--target", "a.de")
    assert "bleu_intl" in json.loads(shell("evaluate", "run", *files, "--json").out)
    assert "bleu" in json.loads(shell("evaluate", "run", *files, "--tokenize", "auto", "--json").out)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (b"one\n", "a.en and b: expected as many lines in both, got 3 and 1"),
        (b"", "b: expected text, got an empty file"),
        (b"one\ntw\xff\nthree\n", "b:2: expected UTF-8, got the byte 0xFF"),
    ],
)
def test_a_bad_file_is_named(shell: Shell, translator: Path, target: bytes, says: str):
    Path("a.en").write_text("one\ntwo\nthree\n")
    Path("b").write_bytes(target)
    said = shell("evaluate", translator, "--source", "a.en", "--target", "b")
    assert said.code == 2
    assert says in said.error
    said = shell("train", "translation", "--source", "a.en", "--target", "b", "--out", "run")
    assert said.code == 2
    assert says.split("b:")[-1] in said.error
    assert not Path("run").exists()


def test_json_has_no_infinity():
    figures = json_of({"a": 1.5, "b": float("inf"), "c": float("nan"), "d": 3})
    assert figures == {"a": 1.5, "b": None, "c": None, "d": 3}


# --- train -------------------------------------------------------------------------------------------------------


def test_train_translate_evaluate(shell: Shell, tmp_path: Path):
    recipe = write_recipe(tmp_path)
    said = shell("train", recipe, "--training.clip=0.5", "--steps", 4, "--seed", 3, "--json")
    assert said.code == 0
    figures = json.loads(said.out)
    assert figures["steps"] == 4
    assert {"bleu", "chrf", "exact_match", "perplexity", "seconds", "best_step"} <= figures.keys()
    assert max(map(len, said.err.splitlines())) <= 110
    assert 'use it: clearhead translate runs/tiny-1 "A sentence."' in said.err
    saved = checkpoints.load(Path("runs/tiny-1/step-00000004")).json["recipe.json"]
    assert isinstance(saved, dict)
    assert saved["training"]["clip"] == 0.5  # pyrefly: ignore
    assert saved["training"]["seed"] == 3  # pyrefly: ignore
    assert shell("translate", "runs/tiny-1", "one two").code == 0
    assert shell("evaluate", "runs/tiny-1", "--json").code == 0
    again = shell("train", recipe, "--steps", 1)
    assert "model: runs/tiny-2" in again.err
    assert "expected a new folder" in shell("train", recipe, "--out", "runs/tiny-1").error
    finished = shell("resume", "runs/tiny-1", "--json")
    assert json.loads(finished.out) == figures, "nothing left to do, and the same to tell"
    longer = shell("resume", "runs/tiny-1", "--steps", 6, "--training.clip", 1.0, "--json")
    assert json.loads(longer.out)["steps"] == 6
    assert "training.steps: 4 -> 6\ntraining.clip: 0.5 -> 1.0\n" in longer.err
    assert "--data: expected a field of training" in shell("resume", "runs/tiny-1", "--data.held_out", 3).error
    assert "did you mean --steps?" in shell("resume", "runs/tiny-1", "--stepz", 3).error


def during(monkeypatch: pytest.MonkeyPatch, step: int, action: Any) -> None:
    """Do something with the loss in the middle of an update."""
    loss, calls = Translation.loss, [0]

    def changed(self: Translation, network: Any, batch: Any, *, smoothing: float = 0.0) -> tuple[torch.Tensor, int]:
        total, count = loss(self, network, batch, smoothing=smoothing)
        calls[0] += torch.is_grad_enabled()
        return (action(total) if calls[0] == step and torch.is_grad_enabled() else total), count

    monkeypatch.setattr(Translation, "loss", changed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_a_step_loses_nothing(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
):
    recipe = write_recipe(tmp_path, steps=6, evaluate_every=3)
    assert shell("train", recipe, "--out", "whole").code == 0

    def stop(total: torch.Tensor) -> torch.Tensor:
        signal.raise_signal(number)
        return total

    with monkeypatch.context() as patch:
        during(patch, 5, stop)
        said = shell("train", recipe, "--out", "run", "--json")
    assert (said.code, said.out) == (128 + number, "")
    assert said.err.splitlines()[-1] == "stopped after step 5; go on with: clearhead resume run"
    assert shell("resume", "run").code == 0

    def losses(folder: str) -> list[object]:
        return [event["loss"] for event in read_metrics(Path(folder)) if event["kind"] == Stepped.__name__.lower()]

    assert len(losses("run")) == 6
    assert losses("run") == losses("whole"), "to the bit"


def test_ctrl_c_before_the_training(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("clearhead.cli.train.session.start", interrupted)
    said = shell("train", write_recipe(tmp_path), "--out", "run")
    assert (said.code, said.out, said.err) == (130, "", "run: reading data\nstopped by Ctrl-C\n")


def test_a_full_disk_loses_nothing(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recipe = write_recipe(tmp_path, steps=6, save_every=2, evaluate_every=6)

    def full(folder: Path) -> Any:
        left = 10**12 if not any(folder.glob("step-00000004")) else 10
        return shutil._ntuple_diskusage(left, 0, left)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", full)
        said = shell("train", recipe, "--out", "run")
    assert said.code == 2
    assert re.match(r"run: expected .* free for a checkpoint, got 10 bytes; try freeing space", said.error)
    assert shell("translate", "run", "one").code == 0, "what was saved is there"
    assert shell("resume", "run").code == 0


def misread(error: Exception) -> Any:
    """As a reader does that takes any failure for that of its file."""
    try:
        raise error
    except OSError:
        raise UserError("file: expected a whole file, got another; try downloading it again") from None


@pytest.mark.parametrize(
    ("step", "change", "code", "says"),
    [
        (3, lambda total: total * float("nan"), 4, "step 3: the gradient's norm is nan; no weight was touched"),
        (3, lambda _: (_ for _ in ()).throw(MemoryError()), 3, "out of memory; try a lower --training.max_tokens"),
        (3, lambda _: torch.empty(1 << 60), 3, "out of memory; try a lower --training.max_tokens"),
        (3, lambda _: misread(OSError(errno.ENOMEM, "Cannot allocate memory")), 3, "out of memory; try a lower"),
    ],
)
def test_memory_and_numbers_have_codes_of_their_own(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, change: Any, code: int, says: str
):
    during(monkeypatch, step, change)
    said = shell("train", write_recipe(tmp_path), "--out", "run")
    assert said.code == code
    assert said.error.startswith(says)
    assert shell("translate", "run", "one").code == 0


# --- where the output goes ---------------------------------------------------------------------------------------


WRITES = """
import sys
from clearhead.cli import main
from clearhead.cli.commands import COMMANDS

def write():
    print("x" * 9)

COMMANDS["Use"]["write"] = "__main__:write"
sys.argv[1:] = ['write']
main()
"""


def into(output: TextIO) -> Said:
    """A command that writes to this file, in a process of its own."""
    command = [sys.executable, "-c", WRITES]
    done = processes.run(command, cwd=ROOT, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    return Said(done.returncode, "", done.stderr)


def test_a_reader_that_leaves_is_no_error():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        assert into(closed) == (141, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_standard_output():
    with Path("/dev/full").open("w") as full:
        said = into(full)
    assert said.code == 2
    assert said.err == f"error: output: {os.strerror(errno.ENOSPC)}; check the path, its permissions and space\n"


def in_shell(line: str, folder: Path, **environment: str) -> Said:
    """A line of a shell, in which `clearhead` is the command line of this checkout."""
    around = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    script = f'clearhead() {{ "{sys.executable}" -m clearhead "$@"; }}; {line}'
    done = processes.run(["bash", "-c", script], cwd=folder, env=around, capture_output=True, timeout=120)
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("streams", "code", "n_lines"),
    [
        (">&-", 0, 0),
        ("2>&-", 0, 0),
        ("<&-", 0, 0),
        (">&- 2>&- <&-", 0, 0),
        ("2>/dev/full", 0, 0),
        (">/dev/full", 2, 1),
        (">/dev/full 2>/dev/full", 2, 0),
        ("| true; exit ${PIPESTATUS[0]}", 141, 0),
    ],
)
def test_streams_that_are_closed_or_full(tmp_path: Path, streams: str, code: int, n_lines: int):
    said = in_shell(f"clearhead --help {streams}", tmp_path)
    assert (said.code, len(said.err.splitlines())) == (code, n_lines), said
    assert "Traceback" not in said.err
    said = in_shell(f"clearhead bogus {streams}", tmp_path)
    assert (said.code, said.out) == (2, ""), "its one line does not go to standard output, whatever is closed"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_command_that_cannot_tell_still_does_its_work(tmp_path: Path):
    said = in_shell("clearhead summary gpt2 --json 2>/dev/full", tmp_path)  # Its table is for standard error.
    assert (said.code, json.loads(said.out)["parameters"]) == (0, 124_439_808)


def test_a_file_does_not_take_the_place_of_a_closed_stream(tmp_path: Path, writer: Path):
    before = {path: path.read_bytes() for path in writer.iterdir()}
    assert in_shell(f"clearhead generate {writer} one --max-new-tokens 2 >&- 2>&- <&-", tmp_path) == (0, "", "")
    assert {path: path.read_bytes() for path in writer.iterdir()} == before


@pytest.mark.parametrize(
    "variables",
    [{"PYTHONIOENCODING": "ascii"}, pytest.param({"LC_ALL": "C", "PYTHONUTF8": "0"}, marks=pytest.mark.slow)],
)
def test_what_an_encoding_lacks_is_escaped(tmp_path: Path, writer: Path, variables: dict[str, str]):
    said = in_shell(f"clearhead generate {writer} 'one Ω' --max-new-tokens 2", tmp_path, **variables)
    assert said.code in (0, 2)
    assert "Traceback" not in said.err
    if variables.get("PYTHONIOENCODING"):
        assert said.out.startswith("one \\u03a9")
    assert in_shell("clearhead --help", tmp_path, **variables).code == 0


@pytest.mark.parametrize("line", ["generate {}", "generate {} one --stop", "translate {} one", "explore {}"])
def test_a_text_that_is_not_text(shell: Shell, translator: Path, line: str):
    said = shell(*line.format(translator).split(), "caf\udce9")  # What Python makes of a byte that is not UTF-8.
    assert (said.code, said.out) == (2, "")
    assert "the byte 0xE9" in said.error
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    "line", ["generate {}", "train {}", "translate {} one", "capture x --data {}", "explore x --export {}"]
)
def test_a_name_that_is_not_utf8_is_refused_before_anything_else(shell: Shell, line: str):
    said = shell(*(word.format("caf\udce9") for word in line.split()))
    assert said == (2, "", "error: caf?: expected text in utf-8, got the byte 0xE9; rename the file\n")


@pytest.mark.parametrize("name", ["-x", "~", "a b", "it's"])
def test_what_a_run_says_can_be_pasted(shell: Shell, tmp_path: Path, name: str):
    recipe = write_recipe(tmp_path, steps=1)
    said = shell("train", recipe, f"--out={name}")
    line = re.search("^use it: clearhead (.*)$", said.err, re.MULTILINE)
    assert line is not None
    assert shell(*shlex.split(line[1])).code == 0


def test_in_a_folder_that_was_removed(tmp_path: Path):
    gone = "mkdir gone && cd gone && rmdir ../gone && "
    assert in_shell(f"{gone} clearhead --help", tmp_path)[::2] == (0, "")
    said = in_shell(f"{gone} clearhead summary gpt2", tmp_path)
    assert said.code == 2
    assert said.error == "current folder: expected one that is there, got none; change to another folder"


# --- how wide a terminal is --------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", ["0", "1", "2", "-5", "abc", "²", "20", "999999999"])
def test_any_width_has_its_help(tmp_path: Path, columns: str):
    said = in_shell("clearhead train --help", tmp_path, COLUMNS=columns)
    assert (said.code, said.err) == (0, "")
    assert max(map(len, said.out.splitlines())) in (20, 80, 1000)


# --- Ctrl-C ------------------------------------------------------------------------------------------------------


STOPS = """
import os, signal, sys, threading
from importlib.abc import MetaPathFinder

class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == wanted:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except BaseException:
                pass  # As some that are imported do.

wanted = sys.argv.pop(1)
if wanted == "exit":
    import atexit
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
else:
    sys.meta_path.insert(0, Finder())
from clearhead.cli import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
@pytest.mark.parametrize("module", ["cyclopts", "clearhead.cli.plan.plan", "torch", "torch.nn"])
def test_ctrl_c_in_an_import_ends_it_in_one_line(module: str):
    done = run_python(STOPS, module, "summary", "gpt2")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped by Ctrl-C\n")


SWALLOWS = """
import os, signal, sys
from clearhead.cli import main
from clearhead.cli.commands import COMMANDS

class Rows:  # As a library in C that calls Python, and makes another error of whatever that raises.
    def __len__(self):
        os.kill(os.getpid(), signal.SIGINT)

def swallow():
    try:
        len(Rows())
    except BaseException:
        raise ValueError("could not determine the shape") from None

COMMANDS["Use"]["swallow"] = "__main__:swallow"
sys.argv[1:] = ["swallow"]
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_that_a_library_makes_another_error_of():
    done = run_python(SWALLOWS)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped by Ctrl-C\n")


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_at_the_end_says_nothing():
    done = run_python(STOPS, "exit", "--version")
    assert (done.returncode, done.stderr) == (130, "")


def test_little_is_imported_before_ctrl_c_is_taken_care_of():
    code = "import sys; before = {*sys.modules}; import clearhead.cli; print(*({*sys.modules} - before))"
    assert set(run_python(code).stdout.split()) == {"clearhead", "clearhead.cli", "clearhead.cli.interrupts"}
