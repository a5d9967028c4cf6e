"""Labels that were made wrong on purpose are found, by models that never saw them."""

from pathlib import Path

import pytest

from clearhead.cli.judge.wrong_labels import doubt
from clearhead.tasks.classification.data import LabelledText
from tests.shell import Shell
from tests.tasks.test_classification import WORDS, rows, write_table

NUMBERS = {"animal": 1.0, "fruit": 2.0, "tool": 3.0}
KINDS = {word: label for label, words in WORDS.items() for word in words.split()}
PAIRS = [(a, b) for a in KINDS for b in KINDS if a < b]
ONE = rows()
SETS = [(f"the {a} and the {b}", "|".join(sorted({KINDS[a], KINDS[b]}))) for a, b in PAIRS]
SCORES = [(text, f"{NUMBERS[label] + i % 3 / 10}") for i, (text, label) in enumerate(rows())]


@pytest.mark.parametrize(
    ("table", "wrong", "problem"),
    [
        (ONE, {3: "fruit", 20: "tool"}, "single"),
        (SETS, {4: "tool", 40: "fruit|tool"}, "multi"),
        (SCORES, {3: "9.0", 20: "-4.0"}, "regression"),
    ],
    ids=["one", "sets", "numbers"],
)
def test_flipped_labels_are_found(shell: Shell, table: list[tuple[str, str]], wrong: dict[int, str], problem: str):
    """The likeliest two are those; labels have the true ones beside them."""
    write_table(Path("table.csv"), [(text, wrong.get(i, label)) for i, (text, label) in enumerate(table)])
    kind = problem if problem == "regression" else f"{problem}_label_classification"
    words = ["wrong-labels", "table.csv", "--label", "kind", "--data.problem_type", kind]
    said = shell.done(*words, "--json")
    found = said.rows
    first = {row["row"]: "|".join(row["given"]) for row in found[:2]}
    assert first == {f"table.csv:{i + 2}": label for i, label in wrong.items()}
    assert [row["score"] for row in found] == sorted(row["score"] for row in found)
    assert "body    text   by its name" in said.err
    if problem != "regression":
        assert {row["row"]: "|".join(row["suggested"]) for row in found[:2]} == {
            f"table.csv:{i + 2}": table[i][1] for i in wrong
        }
    lines = shell.done(*words).lines
    assert len(lines) == min(len(found), 20)
    assert lines[0].startswith(f"{found[0]['row']}  given {'|'.join(found[0]['given'])}  suggested ")


def test_equal_texts_are_judged_together_and_rare_labels_never(capsys):
    """A text that stands twice with one wrong label teaches nothing of itself."""
    table = [*rows(), ("The  apple and the pear", "tool"), ("the one and only", "rare")]
    table = [(text, "tool" if text == "the apple and the pear" else label) for text, label in table]
    examples = [LabelledText((text,), (label,), f"x:{i}") for i, (text, label) in enumerate(table)]
    found = doubt(examples, "single_label_classification", 3)
    assert "too few texts for the folds: rare" in capsys.readouterr().err
    assert {examples[i].normalized for i in found.wrong[:2]} == {"the apple and the pear"}
    assert len(examples) - 1 not in found.wrong


def test_a_run_gives_its_table(shell: Shell):
    write_table(Path("table.csv"), [(text, "fruit" if i == 3 else label) for i, (text, label) in enumerate(rows())])
    shell.done("train", "table.csv", "--out", "run", "--steps", "1", "--precision", "fp32", "--model.preset", "nano")
    assert shell.done("wrong-labels", "run").lines[0].startswith("table.csv:5  given fruit  suggested animal")
