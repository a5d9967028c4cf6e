"""The tables that options of the command line name: whose columns, with which header and separator."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from clearhead.data.sources import read_pairs, read_texts
from clearhead.errors import UserError
from clearhead.recipe.data import Table
from clearhead.session.recipes import Plan, print_plan, recipe_of
from clearhead.tasks.classification.data import read_labelled
from clearhead.tasks.classification.task import ClassificationRecipe
from tests.files import put
from tests.shell import Folders, Shell
from tests.training.tiny import SMALL, number_pairs


def recipe_for(name: str, *changes: str, columns: Any = None, valid: Any = None, **files: str) -> Any:
    return recipe_of(name, changes, short={}, files={"train": files, "valid": valid or {}}, columns=columns)


@pytest.mark.parametrize(
    ("file", "content", "source", "target"),
    [
        ("a.csv", 'en,de\n"one, two",zwei\nthree,drei\n', "en", "de"),
        ("a.csv", "de;en\nzwei;one, two\ndrei;three\n", "en", "de"),
        ("a.tsv", "one, two\tzwei\nthree\tdrei\n", "0", "1"),
        ("a.jsonl", '{"t": {"en": "one, two", "de": "zwei"}}\n{"t": {"en": "three", "de": "drei"}}\n', "t.en", "t.de"),
    ],
)
def test_pairs_from_a_table(file: str, content: str, source: str, target: str):
    put(file, content)
    recipe = recipe_for("translation", data=file, source=source, target=target)
    assert Path(recipe.data.train.path).is_absolute()
    assert [*read_pairs(recipe.data.train)] == [("one, two", "zwei"), ("three", "drei")]


def test_text_from_a_table_and_validation_from_another():
    """Whose columns are those of the training data."""
    for name in ("a", "b"):
        put(f"{name}.csv", f"body;n\ntext {name};1\nmore {name};2\n")
    data = recipe_for("lm", data="a.csv", text="body", valid={"data": "b.csv"}).data
    assert read_texts(data.train) == ["text a", "more a"]
    assert read_texts(data.valid) == ["text b", "more b"]


def test_labels_from_a_table_that_a_recipe_gives():
    put("a.tsv", "x y z\t1\nu v\t0\n" * 5)
    recipe = recipe_for("classification", data="a.tsv", text="0", columns={"label": "1"})
    assert isinstance(recipe, ClassificationRecipe)
    assert {e.labels for e in read_labelled(recipe.data.train, recipe.data)} == {("0",), ("1",)}
    table = recipe_for("a.tsv", valid={"data": "a.tsv"})
    assert table.data.valid == table.data.train
    assert isinstance(table.data.train, Table)
    # The recipe for tables has a header; this one has none, and its first row is a text.
    assert not table.data.train.header


@pytest.mark.parametrize(
    ("name", "files", "says"),
    [
        ("translation", {"data": "a.csv"}, "expected columns of a.csv, got none; give --source NAME --target NAME"),
        ("translation", {"data": "a.csv", "source": "en", "target": "d"}, "a.csv:1: expected a column 'd', got none"),
        ("translation", {"data": "a.csv", "source": "en"}, "expected source and target, or text alone"),
        ("lm", {"data": "a.csv", "source": "en"}, "got --source en; try --data FILE --text NAME"),
        ("a.csv", {"source": "en"}, "a.csv: expected --source NAME and --target NAME, got one of them; give both"),
    ],
)
def test_columns_that_do_not_fit(name: str, files: dict[str, str], says: str):
    put("a.csv", "en,de\none,eins\n")
    with pytest.raises(UserError) as error:
        recipe_for(name, **files)
    assert says in str(error.value)


def test_train_and_evaluate_by_columns(shell: Shell):
    pairs = number_pairs(12)
    text = "".join(f"{a},{b}\n" for a, b in [("en", "de"), *zip(pairs.source, pairs.target, strict=True)])
    put("pairs.csv", text)
    changes = " ".join(f"--model.stacks.{name} {value}" for name, value in SMALL.items())
    line = "train translation --data pairs.csv --source en --target de --steps 1 --out run --precision fp32"
    shell.done(*f"{line} --tokenizer.kind words {changes}".split())
    measure = ("evaluate", "run", "--data", "pairs.csv", "--json")
    assert shell.done(*measure).out == shell.done(*measure, "--source", "en", "--target", "de").out


def test_a_classifier_without_a_recipe_is_measured_on_a_table(shell: Shell, folders: Folders):
    put("x.csv", "body,label\n" + "one two,LABEL_0\nthree,LABEL_1\n" * 5)
    assert "accuracy" in shell.done("evaluate", folders["classifier"], "--data", "x.csv", "--text", "body").out


def test_a_field_of_the_model_leaves_the_preset_of_the_task():
    put("x.csv", "body,label\n" + "one two,a\nthree,b\n" * 5)
    found = recipe_for("x.csv", "--model.stacks.n_layers", "1")
    assert (found.model.preset, found.model.stacks["n_layers"]) == ("text-classifier", 1)


# --- the plan ---------------------------------------------------------------------------------------------------------

REVIEWS = "id;body;topic;note\n" + "".join(f"{i};one two three {i};{'up' if i % 2 else 'down'};\n" for i in range(40))
FLAGS = "text,rude,kind\n" + "".join(f"one two three {i},{i % 2},{i % 3 % 2}\n" for i in range(40))
BARS = "".join(f"one two three {i}\t{'a|b' if i % 3 else 'b|c' if i % 2 else 'c'}\n" for i in range(40))
PAIRS = "en,de\n" + "".join(f"one two {i},eins zwei {i}\n" for i in range(40))
TAGGED = "one O\ntwo B-X\n\nthree O\n\n" * 20
QUESTIONS = '{"question": "Who?", "context": "An owl.", "answers": {"text": ["owl"], "answer_start": [3]}}\n' * 20


@pytest.mark.parametrize(
    ("files", "line", "task"),
    [
        ({"train.csv": REVIEWS, "dev.csv": REVIEWS}, "train.csv --minutes 2 --skip-bad", "classification"),
        ({"a.csv": FLAGS}, "a.csv --label rude,kind", "classification"),
        ({"a.tsv": BARS}, "a.tsv --data.train.header false", "classification"),
        ({"a.csv": PAIRS}, "a.csv", "translation"),
        ({"a.jsonl": QUESTIONS}, "a.jsonl", "question_answering"),
        ({"train.conll": TAGGED, "test.conll": TAGGED}, "train.conll --seed 3", "tagging"),
        ({"book.txt": "word " * 2000}, "book.txt", "lm"),
    ],
)  # fmt: skip
def test_a_dry_run_prints_a_line_that_makes_the_same_recipe(
    files: dict[str, str], line: str, task: str, shell: Shell, monkeypatch
):
    """A table of what was decided is on standard error, in at most 80 columns."""
    for name, content in files.items():
        put(name, content)
    monkeypatch.setenv("COLUMNS", "80")
    recipes = list[Any]()

    def keep(made: Plan, *, as_json: bool) -> None:
        recipes.append(made.recipe)
        print_plan(made, as_json=as_json)

    monkeypatch.setattr("clearhead.session.recipes.print_plan", keep)
    said = shell.done("train", *line.split(), "--dry-run")
    assert "task: " in said.err
    assert max(map(len, said.err.splitlines())) <= 80
    shell.done(*shlex.split(said.out)[1:], "--dry-run")
    assert recipes[0].task == task
    assert recipes[0] == recipes[1]


def test_a_file_that_an_option_gives_takes_the_place_of_one_that_was_found(shell: Shell):
    for name in ("x-train.csv", "x-dev.csv", "other.csv"):
        put(name, REVIEWS)
    decided = [
        shell.done("train", "x-train.csv", "--dry-run", "--json", *one).json for one in ([], ["--valid", "other.csv"])
    ]
    names = [[one["value"] for one in said["decisions"] if one["what"] == "valid"] for said in decided]
    assert names == [["x-dev.csv"], []]
    assert "other.csv" in decided[1]["command"]


def test_a_dry_run_as_json_and_the_names_of_nothing(shell: Shell):
    put("a.csv", REVIEWS)
    said = shell.done("train", "a.csv", "--dry-run", "--json")
    decided = {one["what"]: one["value"] for one in said.json["decisions"]}
    assert decided.items() >= {"text": "body", "label": "topic", "task": "single label classification"}.items()
    assert json.loads(said.out)["command"].startswith("clearhead train a.csv --text body")
    assert said.err == ""
    assert "no such file; did you mean translation?" in shell.refused("train", "translatoin")
    assert "expected a file, got none; try a.csv" in shell.refused("train", "b.csv")
