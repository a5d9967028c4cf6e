import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.data.bad_rows import RowErrors
from clearhead.data.guessing import guess, is_table
from clearhead.data.tables import read_cells, written
from clearhead.errors import UserError
from clearhead.recipe.data import Column, Table
from tests.files import put

LONG = "some words of a text that says a little more than a label"


def write(path: Path, header: list[str], rows: list[list[object]], separator: str = ",") -> Path:
    lines = [header, *rows] if header else rows
    return put(path, (separator.join(map(str, line)) for line in lines))


def rows(n: int = 20) -> list[list[object]]:
    return [[i, f"{LONG} {i}", "up" if i % 2 else "down"] for i in range(n)]


def test_a_recipe_gets_its_table_and_columns(tmp_path):
    path = write(tmp_path / "t.csv", ["id", "said", "way"], rows())
    found = guess(path)
    assert (found.recipe, found.data) == (
        "classification",
        {
            "train": {"kind": "table", "path": str(path), "header": True, "text": "said"},
            "label": "way",
            "problem_type": "single_label_classification",
        },
    )
    told = {one.what: (one.value, one.why, one.option) for one in found.decisions}
    assert told == {
        "text": ("said", "the longest texts; 60 characters a row", "--text NAME"),
        "label": ("way", "the only one that recurs; 2 classes (down, up)", "--label NAME"),
        "task": ("single label classification", "2 classes (down, up)", "--data.problem_type TYPE"),
        "left out": ("id", "ids", "--text NAME or --label NAME"),
    }


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_a_separator_that_the_name_does_not_say_is_found(separator: str, tmp_path):
    found = guess(write(tmp_path / "t.csv", ["id", "said", "way"], rows(), separator))
    assert found.data["train"]["delimiter"] == separator
    assert "--data.train.delimiter" in {one.option for one in found.decisions}


def test_a_table_without_a_header_has_numbers_for_columns(tmp_path):
    path = write(tmp_path / "t.tsv", [], [[f'{LONG} "{i}', 1 - i % 2] for i in range(20)], "\t")
    found = guess(path)
    assert found.data["train"] == {"kind": "table", "path": str(path), "header": False, "text": 0}
    assert found.data["label"] == 1
    assert guess(path, given={"text": "0", "label": "1"}).data == found.data
    assert path.read_text(encoding="utf-8").splitlines()[0].endswith("\t1")  # A cell of a row is no name of a column.


def test_json_lines_and_parquet_say_their_columns(tmp_path):
    records = [{"said": f"{LONG} {i}", "ways": ["up"] if i % 2 else ["up", "down"]} for i in range(20)]
    path = tmp_path / "t.jsonl"
    put(path, map(json.dumps, records))
    found = guess(path)
    assert (found.data["train"]["text"], found.data["problem_type"]) == ("said", "multi_label_classification")
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "t.parquet")
    found = guess(tmp_path / "t.parquet", given={"label": "ways"})
    assert (found.data["train"]["text"], found.data["label"]) == ("said", "ways")


def test_files_beside_that_of_training_are_used_if_they_suit(tmp_path):
    header = ["said", "way"]
    train = write(tmp_path / "x_train.csv", header, [row[1:] for row in rows()])
    dev = write(tmp_path / "x_dev.csv", header, [row[1:] for row in rows(4)])
    write(tmp_path / "x_test.csv", header, [["a b", "else"], ["c d", "up"]])
    found = guess(train)
    assert found.data["valid"] == found.data["train"] | {"path": str(dev)}
    assert "test" not in found.data
    told = [(one.what, one.value, one.why) for one in found.decisions if one.value.startswith("x_")]
    assert told == [
        ("valid", "x_dev.csv", "by its name"),
        ("left out", "x_test.csv", "labels that training does not have, such as else"),
    ]
    assert "valid" not in guess(train, given={"valid": "other.csv"}).data


@pytest.mark.parametrize(
    ("lines", "given", "told"),
    [
        ("text,label\na b,x\n", {"label": "lable"}, ":1: expected a column 'lable', got none; try label"),
        ("text,x,y\na b,0,1\n", {"label": "x,z"}, ":1: expected a column 'z', got none"),
        (
            "said,way,more\n" + "".join(f"{LONG} {i},{'ab'[i % 2]},{i % 3}\n" for i in range(30)) + "a,b,c,d\n",
            {},
            "; also --skip-bad: 1 row is bad",
        ),
        ("one column\na text here\n", {}, ":1: expected columns between commas, semicolons, tabs, bars, got one; add"),
    ],
)
def test_a_table_that_is_none_is_told(lines: str, given: dict[str, Any], told: str, tmp_path):
    put(tmp_path / "t.csv", lines)
    with pytest.raises(UserError) as error:
        guess(tmp_path / "t.csv", given=given)
    assert told in str(error.value)


def test_a_table_is_known_by_its_name():
    assert all(map(is_table, ("a.csv", "a.TSV", "a.jsonl", "a.parquet", "a.csv.gz")))
    assert not any(map(is_table, ("translation", "a.toml", "csv", "a.txt")))


PEOPLE = [[f"{LONG} {i}", "up" if i % 2 else "down"] for i in range(20)]
COMMAS = [f"{label},{text}, and then, at the end, more" for text, label in PEOPLE]
ONE_LABEL = [{"text": text, "label": [label]} for text, label in PEOPLE]
SPANS = [{"text": text, "entities": [{"start_offset": 0, "end_offset": 4}], "relations": []} for text, _ in PEOPLE]


@pytest.mark.parametrize(
    ("name", "content", "text", "label", "header"),
    [
        ("t.json", json.dumps([["said", "way"], *PEOPLE]), "said", "way", True),
        ("t.jsonl", "\n".join(map(json.dumps, [["said", "way"], *PEOPLE])), "said", "way", True),
        ("t.json", json.dumps({"version": 1, "rows": [["said", "way"], *PEOPLE]}), "said", "way", True),
        ("t.json", json.dumps(PEOPLE), 0, 1, False),
        ("t.jsonl", "\n".join(map(json.dumps, ONE_LABEL)), "text", "label", False),
    ],
)
def test_rows_of_lists_and_lists_of_one_label(
    name: str, content: str, text: Column, label: Column, header: bool, tmp_path
):
    put(tmp_path / name, content)
    found = guess(tmp_path / name)
    table = Table.model_validate(found.data["train"])
    assert (table.text, found.data["label"], table.header) == (text, label, header)
    assert found.data["problem_type"] == "single_label_classification"
    assert "2 classes (" in next(one.why for one in found.decisions if one.what == "label")
    read = [[one, written(other)] for _, (one, other) in read_cells(table, [text, label], RowErrors())]
    assert read == PEOPLE
    assert "by its name" not in {one.why for one in found.decisions if one.what == "data"}


@pytest.mark.parametrize(("labels", "said"), [("Spam spam Ham", "Spam and spam"), ("1 1.0 0", "1 and 1.0")])
def test_labels_that_are_nearly_equal_are_told(labels: str, said: str, tmp_path):
    first, other, last = labels.split()
    rows = [f"way {i} of {label}s to go,{label}" for label, n in ((first, 9), (other, 6), (last, 3)) for i in range(n)]
    put(tmp_path / "t.csv", ["text,label", *rows])
    why = next(one.why for one in guess(tmp_path / "t.csv").decisions if one.what == "label")
    assert why.endswith(f"; {said} count as two")


def test_most_rows_are_never_left_out_in_silence(tmp_path):
    path = tmp_path / "t.csv"
    put(path, ["label,text", *COMMAS])
    with pytest.raises(UserError, match=r"t.csv:2: .*; so are 20 of 20 rows; .* --data.train.format label_text"):
        guess(path)
    form = {"format": "label_text", "delimiter": ",", "skip_lines": 1}
    found = guess(path, given={"train": form})
    assert next(one.why for one in found.decisions if one.what == "label").endswith("2 classes (down, up)")
    table = Table.model_validate(found.data["train"])
    cells = [",".join(map(str, row)) for _, row in read_cells(table, ["label", "text"], RowErrors())]
    assert cells == COMMAS
    put(path, ["label,text", *COMMAS, *(f"{row[1]},{row[0]}" for row in PEOPLE[:6])])
    told = {one.what: one.value for one in guess(path, given={"skip_bad": True}).decisions}
    assert told["bad rows"] == "20 of 26 (MORE THAN HALF)"


def test_empty_lists_are_no_labels_and_blanks_count_as_columns(tmp_path):
    path = tmp_path / "t.jsonl"
    put(path, map(json.dumps, SPANS))
    with pytest.raises(UserError, match="expected a column of labels whose values recur"):
        guess(path)
    put(path, "".join(f"   {json.dumps(row)}\n" for row in ONE_LABEL) + '   {"text": }\n')
    with pytest.raises(UserError, match=r"t.jsonl:21: expected JSON, got expecting value \(column 13\)"):
        guess(path)
    write(tmp_path / "long.jsonl", [], [[f"   {json.dumps(row)}"] for row in ONE_LABEL * 6] + [['   {"text": }']])
    assert (
        "long.jsonl:121: expected JSON, got expecting value (column 13)"
        in guess(tmp_path / "long.jsonl").decisions[-1].why
    )
