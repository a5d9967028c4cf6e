"""Labels that were made wrong on purpose are found, by models that never saw them."""

import json
from pathlib import Path

import numpy as np
import pytest

from clearhead.api import load
from clearhead.cli.judge.doubts import joined, opinion
from clearhead.cli.judge.suspects import classifier_of, parts_of
from clearhead.errors import UserError
from clearhead.tasks.classification.data import LabelledText
from clearhead.tasks.classification.task import ClassificationRecipe
from clearhead.tasks.registry import validate
from tests.later import later
from tests.shell import Shell
from tests.tasks.small import SIZES
from tests.tasks.test_classification import WORDS, rows, tables, write_table

later("cleanlab")
LINE = "wrong-labels table.csv --out found --precision fp32 --training.optimizer.lr 1e-2 --training.schedule.warmup 2 "
LINE += " ".join(SIZES)


def test_flipped_labels_are_found(shell: Shell):
    """Two of 36, of two labels, whose places and true labels the list gives; each model opens in the explorer."""
    table = rows()
    wrong = {3: "fruit", 20: "tool"}
    write_table(Path("table.csv"), [(text, wrong.get(i, label)) for i, (text, label) in enumerate(table)])
    said = shell.done(*f"{LINE} --folds 3 --epochs 25 --training.max_tokens 64 --json".split())
    found = said.rows
    assert said.out == Path("found/wrong_labels.jsonl").read_text()
    first = {row["row"]: (row["given"], row["suggested"]) for row in found[:2]}
    assert first == {f"table.csv:{i + 2}": (label, table[i][1]) for i, label in wrong.items()}
    assert [row["score"] for row in found] == sorted(row["score"] for row in found)
    assert "body    text   by its name" in said.err
    for row in found[:2]:
        command, name, text = row["explore"].split(" ", 3)[1:]
        assert (command, text.strip("'")) == ("explore", row["texts"][0])
        shares = dict(load(name).classify(row["texts"])[0])
        assert max(shares, key=shares.__getitem__) == row["suggested"]
        assert row["probability"] > 0.9


def test_wrong_sets_of_labels_are_found(shell: Shell):
    kinds = {word: label for label, words in WORDS.items() for word in words.split()}
    texts = [(a, b) for a in kinds for b in kinds if a < b]
    table = [(f"the {a} and the {b}", "|".join(sorted({kinds[a], kinds[b]}))) for a, b in texts]
    wrong = {4: "tool", 40: "fruit|tool"}
    write_table(Path("table.csv"), [(text, wrong.get(i, label)) for i, (text, label) in enumerate(table)])
    more = "--folds 3 --epochs 15 --training.max_tokens 96 --label kind --json"
    said = shell.done(*f"{LINE} {more} --data.problem_type multi_label_classification".split())
    suggested = {row["row"]: "|".join(row["suggested"]) for row in said.rows}
    assert suggested == {f"table.csv:{i + 2}": table[i][1] for i in wrong}
    for row in said.rows:
        assert row["given"] == wrong[int(row["row"][10:]) - 2].split("|")
        assert row["probability"] > 0.9
    assert "of the sets of labels" in said.err


def test_wrong_numbers_are_found(shell: Shell):
    numbers = {"animal": 1.0, "fruit": 2.0, "tool": 3.0}
    wrong = {3: 9.0, 20: -4.0}
    table = [(text, f"{wrong.get(i, numbers[label] + i % 3 / 10)}") for i, (text, label) in enumerate(rows())]
    write_table(Path("table.csv"), table)
    more = "--folds 2 --epochs 25 --training.max_tokens 64 --data.problem_type regression"
    said = shell.done(*f"{LINE} {more}".split())
    found = [json.loads(text) for text in Path("found/wrong_labels.jsonl").read_text().splitlines()]
    assert {row["row"]: row["given"] for row in found[:2]} == {f"table.csv:{i + 2}": n for i, n in wrong.items()}
    for row in found:
        assert load(row["explore"].split()[2]).predict(row["texts"])[0]["values"] == pytest.approx([row["suggested"]])
        assert abs(row["deviations"]) > 3
    assert "table.csv:5  given 9  suggested" in "".join(said.lines[:2])
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


def test_a_run_gives_its_recipe(shell: Shell):
    write_table(Path("table.csv"), rows())
    shell.done(*"train table.csv --out run --steps 1 --precision fp32".split(), *SIZES)
    recipe = classifier_of("run", ["--training.clip", "0.5"], short={"steps": 7}, columns={}, text=None)
    assert (recipe.training.steps, recipe.training.clip, recipe.data.label) == (7, 0.5, "kind")
    load("run").save(Path("model"))
    with pytest.raises(UserError, match=r"expected a run, got a model without recipe\.json; give the table instead"):
        classifier_of("model", [], short={}, columns={}, text=None)
