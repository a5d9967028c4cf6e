import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from clearhead.data.splits import hold_out
from clearhead.errors import UserError
from clearhead.recipe.data import Table, TextFiles
from clearhead.recipe.tokenizers import Words
from clearhead.tasks.classification.data import (
    ClassificationData,
    Inputs,
    LabelledText,
    names_of,
    read_labelled,
)
from clearhead.tasks.classification.task import Classification, Labelled
from clearhead.text.tokenizers import Tokenizer
from tests.files import put


def examples(n: int) -> list[LabelledText]:
    return [LabelledText((f"text {i}",), ("often" if i % 4 else "seldom",), f"t.csv:{i + 2}") for i in range(n)]


def read(path: Path, **data: Any) -> list[LabelledText]:
    source = Table(path=path, text="text")
    return read_labelled(source, ClassificationData(train=source, **data))


def test_labels_are_in_order_numbers_by_value():
    made = [LabelledText(("x",), (name,), "") for name in ("10", "9", "b", "1.5", "a", "9")]
    assert names_of(made) == ("1.5", "9", "10", "a", "b")


def test_held_out_parts_have_their_share_of_each_label_in_any_order_of_the_rows():
    parts = hold_out(examples(200), [0.1, 0.2], by_label=True)
    assert [len(part) for part in parts] == [20, 40, 140]
    assert Counter(e.labels[0] for e in parts[0]) == {"often": 15, "seldom": 5}
    assert {e.texts for part in parts for e in part} == {e.texts for e in examples(200)}
    again = hold_out(examples(200)[::-1], [0.1, 0.2], by_label=True)
    assert [{*part} for part in parts] == [{*part} for part in again]


def test_equal_texts_are_in_one_part():
    twice = [LabelledText((text,), ("x",), "") for i in range(40) for text in (f"Text {i}", f"text  {i} ")]
    valid, train = hold_out(twice, [0.25], by_label=True)
    assert not {e.normalized for e in valid} & {e.normalized for e in train}
    assert len(valid) == 20


def test_a_label_of_one_text_stays_in_training():
    rare = [*examples(40), LabelledText(("once",), ("often", "rare"), "")]
    rare += [LabelledText(("twice",), ("often",), ""), LabelledText(("Twice",), ("rarer",), "")]
    *others, train = hold_out(rare, [0.4, 0.4], by_label=True)
    assert {"rare", "rarer"} <= {*names_of(train)}
    assert not {"rare", "rarer"} & {name for part in others for name in names_of(part)}


@pytest.mark.parametrize(
    ("cell", "labels"),
    [(3, ("3",)), (3.0, ("3",)), (2.5, ("2.5",)), (True, ("true",)), (" x ", ("x",))],
)
def test_a_label_is_read_from_any_cell(cell: object, labels: tuple[str, ...], tmp_path):
    path = tmp_path / "t.jsonl"
    put(path, json.dumps({"text": "a", "label": cell}))
    assert read(path) == [LabelledText(("a",), labels, f"{path}:1")]


@pytest.mark.parametrize("cell", [["x", "y", "x"], "x|y", "x | y|"])
def test_several_labels_are_a_list_or_separated(cell: object, tmp_path):
    path = tmp_path / "t.jsonl"
    put(path, json.dumps({"text": "a", "label": cell}))
    (example,) = read(path, problem_type="multi_label_classification")
    assert example.labels == ("x", "y")


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        (None, ":1: expected a label in column 'label', got none; fill it in or delete the row"),
        (float("nan"), ":1: expected a label in column 'label', got nan; fill it in or delete the row"),
        (["x", "y"], ":1: expected one label in column 'label', got ['x', 'y']; try data.problem_type = "),
    ],
)
def test_a_missing_label_is_told_with_its_row(cell: Any, told: str, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    parquet.write_table(
        pyarrow.table({"text": ["a", "b"], "label": [cell if isinstance(cell, list) else 1.0, cell]}), path
    )
    with pytest.raises(UserError) as error:
        read(path)
    wanted = told.replace(":1:", ":row 0:" if isinstance(cell, list) else ":row 1:")
    assert str(error.value).startswith(f"{path}{wanted}")


def test_a_source_without_columns_is_told():
    source = TextFiles(paths=(Path("a.txt"),))
    with pytest.raises(UserError, match=r"^text: expected a table with a column of texts, got none; try text ="):
        read_labelled(source, ClassificationData(train=source))


def test_the_report_counts_what_may_mislead():
    both = zip("abAa ", "xyyyx", strict=True)
    train = [LabelledText((text,), (label,), f"t.csv:{i}") for i, (text, label) in enumerate(both)]
    valid = [LabelledText((" b",), ("x",), "v.csv:2"), LabelledText(("c",), ("x",), "v.csv:3")]
    task = Classification(
        Tokenizer.train("ab", Words()), labels=("x", "y"), problem_type="single_label_classification", limit=8
    )
    told = task.describe("train", train, Labelled(train[:4], Inputs([[4, 1], [5, 1]], None, [3, 4, 5, 9])), ()).text
    cut = "1 cut to 8, the longest of them t.csv:3"
    assert [*told] == [
        f"train: 4 of 5 examples (1 empty, left out), 5.2 tokens each, at most 9; {cut}",
        "  labels: x 25.0%, y 75.0%",
        "  50.00% of 4 tokens are unknown",
        "  2 duplicates, kept",
        "  2 of them with another label, such as t.csv:2",
    ]
    told = task.describe("valid", valid, Labelled(valid, Inputs([], None, [1, 1])), train).text
    assert "  no example of y: its scores say nothing about that" in told
    assert "  1 (50.0%) is also in train, such as v.csv:2, which is t.csv:1" in told


def test_texts_are_cut_to_the_limit_and_never_empty():
    tokenizer = Tokenizer.train(["a b c d e f"], Words())
    found = Inputs.of([("a b c d",), ("",), ("f",)], tokenizer, 3)
    assert [len(ids) for ids in found.ids] == [3, 1, 1]
    assert found.lengths == [4, 0, 1]
    assert found.ids[0] == tokenizer.encode("a b c")


@pytest.mark.parametrize("texts", [[("a b", "c"), ("a", "b c d"), ("e f g", "h")], [("a",), ("b c",), ("d e f",)]])
def test_chosen_inputs_are_those_of_the_chosen_texts(texts: list[tuple[str, ...]]):
    tokenizer = Tokenizer.train(["a b c d e f g h"], Words()).templated("$A", "$A {end} $B:1")
    found = Inputs.of(texts, tokenizer, 9).take([2, 0])
    assert found == Inputs.of([texts[2], texts[0]], tokenizer, 9)


@pytest.mark.parametrize("limit", [3, 4, 7, 8, 11, 12, 40])
def test_pairs_are_cut_as_the_library_cuts_them(limit: int):
    rng = random.Random(limit)
    words = "a b c d e".split()
    tokenizer = Tokenizer.train([" ".join(words)], Words()).templated("$A {end}", "$A {end} $B:1 {end}:1")
    pairs = [tuple(" ".join(rng.choices(words, k=rng.randint(1, 16))) for _ in range(2)) for _ in range(60)]
    library = tokenizers.Tokenizer.from_str(tokenizer.library.to_str())
    library.enable_truncation(limit, strategy="longest_first")
    found = Inputs.of(pairs, tokenizer, limit)
    assert found.types is not None
    for pair, ids, types in zip(pairs, found.ids, found.types, strict=True):
        expected = library.encode(pair[0], pair[1])
        assert (ids, types) == (expected.ids, expected.type_ids)
    assert found.lengths == [len(ids) for ids in Inputs.of(pairs, tokenizer, 99).ids]
    with pytest.raises(UserError, match=r"^texts: expected all single or all pairs, got both"):
        Inputs.of([*pairs, ("a",)], tokenizer, limit)


@pytest.mark.parametrize(
    ("cells", "data", "labels"),
    [
        ({"x": [0, 1, True], "y": ["1", "0", "true"]}, {"label": ("x", "y")}, [("y",), ("x",), ("x", "y")]),
        ({"label": ["['a', 'b']", "a;b", ["c"]]}, {"separator": ";"}, [("a", "b"), ("a", "b"), ("c",)]),
        ({"label": ["a", "-", "b"]}, {"no_label": "-"}, [("a",), ("b",)]),
    ],
)  # fmt: skip
def test_labels_in_several_columns_or_parts_or_none(
    cells: dict[str, list[Any]], data: dict[str, Any], labels: list[tuple[str, ...]], tmp_path
):
    path = tmp_path / "t.jsonl"
    rows = [{"text": "one", **{name: values[i] for name, values in cells.items()}} for i in range(3)]
    put(path, map(json.dumps, rows))
    data = {"problem_type": "multi_label_classification", **data}
    assert [one.labels for one in read(path, **data)] == labels
    rows[1] = dict.fromkeys(rows[1], "half")
    put(path, map(json.dumps, rows))
    if "x" in cells:
        with pytest.raises(UserError, match=r"t\.jsonl:2: expected 0 or 1 in column 'x', got 'half'"):
            read(path, **data)
