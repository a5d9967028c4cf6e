"""Labels that were made wrong on purpose are found, by models that never saw them."""

import json
from pathlib import Path

import numpy as np
import pytest

from clearhead.api import load
from clearhead.cli import main
from clearhead.cli.judge.doubts import joined, opinion
from clearhead.cli.judge.suspects import classifier_of, parts_of
from clearhead.errors import UserError
from clearhead.tasks.classification.data import LabelledText
from clearhead.tasks.classification.task import ClassificationRecipe
from clearhead.tasks.registry import validate
from tests.tasks.small import SMALL
from tests.tasks.test_classification import WORDS, rows, tables, write_table


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
    line = "wrong-labels table.csv --folds 3 --out found --precision fp32 --epochs 25 --training.max_tokens 64 --json"
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
        shares = dict(load(name).classify(row["texts"])[0])
        assert max(shares, key=shares.__getitem__) == row["suggested"]
        assert row["probability"] > 0.9


def test_wrong_sets_of_labels_are_found(capsys: pytest.CaptureFixture[str]):
    kinds = {word: label for label, words in WORDS.items() for word in words.split()}
    texts = [(a, b) for a in kinds for b in kinds if a < b]
    table = [(f"the {a} and the {b}", "|".join(sorted({kinds[a], kinds[b]}))) for a, b in texts]
    wrong = {4: "tool", 40: "fruit|tool"}
    write_table(Path("table.csv"), [(text, wrong.get(i, label)) for i, (text, label) in enumerate(table)])
    line = "wrong-labels table.csv --folds 3 --out found --precision fp32 --epochs 15 --training.max_tokens 96 --json"
    changes = " ".join(f"--model.stacks.{name} {value}" for name, value in SMALL.items())
    fields = "--data.problem_type multi_label_classification --training.optimizer.lr 1e-2 --training.schedule.warmup 2"
    main(f"{line} --label kind {changes} {fields}".split())
    said = capsys.readouterr()
    found = [*map(json.loads, said.out.splitlines())]
    assert {row["row"]: "|".join(row["suggested"]) for row in found} == {
        f"table.csv:{i + 2}": table[i][1] for i in wrong
    }
    assert all(row["given"] == wrong[int(row["row"][10:]) - 2].split("|") and row["probability"] > 0.9 for row in found)
    assert "of the sets of labels" in said.err


def test_wrong_numbers_are_found(capsys: pytest.CaptureFixture[str]):
    table = [
        (text, {"animal": 1.0, "fruit": 2.0, "tool": 3.0}[label] + i % 3 / 10) for i, (text, label) in enumerate(rows())
    ]
    wrong = {3: 9.0, 20: -4.0}
    write_table(Path("table.csv"), [(text, f"{wrong.get(i, n)}") for i, (text, n) in enumerate(table)])
    line = "wrong-labels table.csv --folds 2 --out found --precision fp32 --epochs 25 --training.max_tokens 64"
    changes = " ".join(f"--model.stacks.{name} {value}" for name, value in SMALL.items())
    fields = "--data.problem_type regression --training.optimizer.lr 1e-2 --training.schedule.warmup 2"
    main(f"{line} {changes} {fields}".split())
    said = capsys.readouterr()
    found = [json.loads(text) for text in Path("found/wrong_labels.jsonl").read_text().splitlines()]
    assert {row["row"]: row["given"] for row in found[:2]} == {f"table.csv:{i + 2}": n for i, n in wrong.items()}
    for row in found:
        assert load(row["explore"].split()[2]).predict(row["texts"])[0]["values"] == pytest.approx([row["suggested"]])
        assert abs(row["deviations"]) > 3
    assert "table.csv:5  given 9  suggested" in said.out.splitlines()[0] + said.out.splitlines()[1]
    assert "half of the models' numbers are within" in said.err


def test_equal_texts_are_judged_together_and_rare_labels_never(capsys: pytest.CaptureFixture[str]):
    write_table(Path("table.csv"), [*rows(), *rows()[:5], ("the one and only", "rare")])
    recipe = validate(tables(), where="x")
    assert isinstance(recipe, ClassificationRecipe)
    examples, parts = parts_of(recipe, 3)
    assert "too few texts for the folds: rare" in capsys.readouterr().err
    assert len(examples) == 42
    assert sum(map(len, parts)) == 41
    texts = [{example.normalized for example in part} for part in parts]
    assert not texts[0] & texts[1]
    assert not texts[2] & (texts[0] | texts[1])
    assert all({example.labels[0] for example in part} == {"animal", "fruit", "tool"} for part in parts)


def test_a_second_opinion_counts_as_far_as_it_helps():
    """A model that knows half of the labels, and one that knows the other half, are right together."""
    has = np.eye(2, dtype=bool)[np.arange(40) % 2]
    knows = (np.arange(40) < 20)[:, None]
    first, second = (np.where(known, np.where(has, 0.9, 0.1), 0.5) for known in (knows, ~knows))
    for several in (False, True):
        both = joined(first, second, has, several=several)
        assert both.shape == (40, 2)
        assert (both[has] > 0.99).all()
        assert joined(first, 1 - first, has, several=several) == pytest.approx(
            joined(first, first * 0 + 0.5, has, several=several), abs=0.02
        )


def test_a_linear_model_knows_words_by_their_labels():
    def example(text: str, *labels: str) -> LabelledText:
        return LabelledText((text,), labels, "f:1")

    known = [
        example(f"a {word} number {i}", label) for i in range(10) for word, label in (("dog", "pet"), ("saw", "tool"))
    ]
    found = opinion(known, [example("the dog"), example("the saw")], ["pet", "tool", "never"])
    assert (found.argmax(1) == [0, 1]).all()
    assert (found[:, 2] == 0).all()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("table.csv --folds 1", "--folds: expected at least 2, got 1"),
        ("table.csv --models 0", "--models: expected at least 1, got 0"),
        ("table.csv --folds 13", "expected at least 2 labels with 13 texts each"),
        (
            "translation --data.train.source a --data.train.target b",
            "expected texts with labels, got the task translation",
        ),
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
