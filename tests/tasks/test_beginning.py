"""A new classifier begins with what counting words says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearhead.api import Model
from clearhead.recipe import read
from clearhead.tasks.classification.defaults import MOST_EPOCHS, settle
from clearhead.tasks.classification.scores import spearman
from clearhead.tasks.classification.task import Classification
from clearhead.tasks.networks import outputs_of
from clearhead.tasks.registry import validate
from clearhead.training.run_folder import recipe_in
from tests.tasks.small import begin, tables_of, write_rows
from tests.tasks.test_classification import PROBLEMS, WORDS, rows

ANSWERS: dict[str, Any] = {
    PROBLEMS[0]: lambda label: label,
    PROBLEMS[1]: lambda label: f"{label}|thing" if label != "tool" else label,
    PROBLEMS[2]: lambda label: {"animal": 800, "fruit": 1000, "tool": 1200}[label],
}
SIZES = {"d_model": 64, "n_layers": 1, "n_heads": 2, "d_ff": 32}


def recipe(table: list[dict[str, Any]], *, begin: str = "words", **data: Any) -> dict[str, Any]:
    """A recipe for this table."""
    source = {"kind": "table", "path": write_rows("table.jsonl", table), "header": True, "text": "text"}
    tables = tables_of("classification", source, preset="text-classifier", data={"label": "label", **data})
    tables["model"]["stacks"] = SIZES
    return {**tables, "begin": begin}


def first_score(tables: dict[str, Any]) -> float:
    """The main score on validation before the first step."""
    run, _ = begin(tables, tables["begin"])
    return run.task.evaluate(run.network.eval()).score(run.task.main_score).value


@pytest.mark.parametrize("problem_type", PROBLEMS)
def test_a_classifier_begins_as_a_linear_model(in_a_folder: None, problem_type: Any):
    table = [{"text": text, "label": ANSWERS[problem_type](label)} for text, label in rows()]
    tables = recipe(table, problem_type=problem_type)
    assert first_score(tables) > 0.9
    assert first_score({**tables, "begin": "random"}) < 0.8


def test_what_a_recipe_leaves_open_follows_from_the_table_and_is_told(in_a_folder: None):
    table = [{"text": text, "label": label} for text, label in rows()]
    tables = recipe(table) | {"tokenizer": read("classification")["tokenizer"]}
    del tables["training"]["steps"]
    run, prepared = begin(tables)
    kept = validate(recipe_in(Path("run/recipe.json")), where="x")
    assert run.config.epochs == MOST_EPOCHS == kept.training.epochs
    told = "\n".join(prepared.data.lines())
    for option in ("--epochs", "--training.optimizer.lr", "--patience", "--model.stacks", "--tokenizer"):
        assert option in told
    large = settle(validate(tables, where="x"), n_tokens=1_000_000, n_labels=150)
    assert (large.training.epochs, large.model.stacks["d_model"]) == (1.1, 64), "what is given stays"
    assert settle(validate(tables, where="x"), n_tokens=10_000_000, n_labels=2).training.epochs == 0.2
    timed = validate(tables | {"training": tables["training"] | {"minutes": 30}}, where="x")
    assert settle(timed, n_tokens=1_000_000, n_labels=150).training.epochs == MOST_EPOCHS, "the time is given"
    assert "0.00% of" in told
    with_emoji = [f"the cat and the {emoji}" for emoji in "\N{ROCKET}\N{GRINNING FACE}"]
    model = Model(run.network.eval(), prepared.data.tokenizer)
    first, second = model.classify(with_emoji)
    assert first != second


def pairs() -> list[dict[str, Any]]:
    """Pairs of texts of four words, and the number of words that they share."""
    random, words = np.random.default_rng(0), [word for some in WORDS.values() for word in some.split()]
    table: list[dict[str, Any]] = []
    for i in range(200):
        shared = i % 5
        drawn = [*map(str, random.permutation(words))]
        both = [random.permutation(drawn[:4]), random.permutation([*drawn[:shared], *drawn[4 : 8 - shared]])]
        table.append({"text": " ".join(both[0]), "other": " ".join(both[1]), "label": shared / 4})
    return table


def test_heads_of_a_classifier_of_pairs_find_the_words_that_both_have(in_a_folder: None):
    tables = recipe(pairs(), text_pair="other", problem_type="regression")
    tables["model"]["stacks"] = SIZES | {"d_model": 128}
    run, _ = begin(tables)
    task, read, order = run.task, list[torch.Tensor](), list[int]()
    assert isinstance(task, Classification)
    run.network.get_submodule("head.dense").register_forward_pre_hook(lambda _, given: read.append(given[0].detach()))
    for numbers, _, _ in outputs_of(run.network.eval(), task.tokenizer, **task.train.inputs.read):
        order += numbers
    shared = task.targets(task.train.examples)[order, 0].numpy()
    assert spearman(shared, -torch.cat(read)[:, -3].numpy()) > 0.8
