"""Labels that were made wrong on purpose are found, by models that never saw them."""

import json
from pathlib import Path

import pytest

from clearhead.api import load
from clearhead.cli import main
from clearhead.commands.wrong_labels import classifier_of, parts_of
from clearhead.errors import UserError
from clearhead.tasks.classification import ClassificationRecipe
from clearhead.tasks.registry import validate
from tests.tasks.test_classification import SMALL, rows, tables, write_table


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cleanlab")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda _: None)


def test_flipped_labels_are_found(capsys: pytest.CaptureFixture[str]):
    """Two of 36, of two labels, whose places and true labels the list gives; each model opens in the explorer."""
    table = rows()
    wrong = {3: "fruit", 20: "tool"}
    write_table(Path("table.csv"), [(text, wrong.get(i, label)) for i, (text, label) in enumerate(table)])
    line = "wrong-labels table.csv --folds 2 --out found --precision fp32 --epochs 25 --training.max_tokens 64 --json"
    changes = " ".join(f"--model.stacks.{name} {value}" for name, value in SMALL.items())
    main(f"{line} {changes} --training.optimizer.lr 1e-2 --training.schedule.warmup 2".split())
    said = capsys.readouterr()
    found = [json.loads(text) for text in said.out.splitlines()]
    assert found == [json.loads(text) for text in Path("found/wrong_labels.jsonl").read_text().splitlines()]
    first = {row["row"]: (row["given"], row["suggested"]) for row in found[:2]}
    assert first == {f"table.csv:{i + 2}": (label, table[i][1]) for i, label in wrong.items()}
    assert [row["score"] for row in found] == sorted(row["score"] for row in found)
    assert "text: column 'body'" in said.err
    for row in found[:2]:
        command, name, text = row["explore"].split(" ", 3)[1:]
        assert (command, text.strip("'")) == ("explore", row["texts"][0])
        share = dict(load(name).classify(row["texts"])[0])[row["suggested"]]
        assert share == pytest.approx(row["probability"], abs=1e-4)


def test_equal_texts_are_judged_together_and_rare_labels_never(capsys: pytest.CaptureFixture[str]):
    write_table(Path("table.csv"), [*rows(), *rows()[:5], ("the one and only", "rare")])
    recipe = validate(tables(), where="x")
    assert isinstance(recipe, ClassificationRecipe)
    examples, parts = parts_of(recipe, 3)
    assert "fewer texts than there are folds: rare" in capsys.readouterr().err
    assert len(examples) == 42
    assert sum(map(len, parts)) == 41
    texts = [{example.normalized for example in part} for part in parts]
    assert not texts[0] & texts[1]
    assert not texts[2] & (texts[0] | texts[1])
    assert all({example.labels[0] for example in part} == {"animal", "fruit", "tool"} for part in parts)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("table.csv --folds 1", "--folds: expected at least 2, got 1"),
        ("table.csv --folds 13", "expected at least 2 labels with 13 texts each"),
        (
            "translation --data.train.source a --data.train.target b",
            "expected texts with one label each, got another task",
        ),
        ("table.csv --data.problem_type regression", "expected texts with one label each"),
        ("nowhere.csv", "nowhere.csv: expected a file, got none"),
    ],
)
def test_what_cannot_be_judged_is_refused(line: str, says: str, capsys: pytest.CaptureFixture[str]):
    write_table(Path("table.csv"), rows())
    with pytest.raises(SystemExit):
        main(["wrong-labels", *line.split()])
    error = capsys.readouterr().err.splitlines()[-1]
    assert says in error


def test_a_run_gives_its_recipe():
    write_table(Path("table.csv"), rows())
    changes = " ".join(f"--model.stacks.{name} {value}" for name, value in SMALL.items())
    main(f"train table.csv --out run --steps 1 --precision fp32 {changes}".split())
    recipe = classifier_of("run", ["--training.clip", "0.5"], short={"steps": 7}, columns={}, text=None)
    assert (recipe.training.steps, recipe.training.clip, recipe.data.label) == (7, 0.5, "kind")
    load("run").save(Path("model"))
    with pytest.raises(UserError, match=r"expected a run, got a model without recipe\.json; give the table instead"):
        classifier_of("model", [], short={}, columns={}, text=None)
