import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.data.guessing import guess, is_table
from clearhead.errors import UserError

LONG = "some words of a text that says a little more than a label"


def written(path: Path, header: list[str], rows: list[list[object]], separator: str = ",") -> Path:
    lines = [header, *rows] if header else rows
    path.write_text("\n".join(separator.join(map(str, line)) for line in lines), encoding="utf-8")
    return path


def rows(n: int = 20) -> list[list[object]]:
    return [[i, f"{LONG} {i}", "up" if i % 2 else "down"] for i in range(n)]


def test_a_recipe_gets_its_table_and_columns(tmp_path):
    path = written(tmp_path / "t.csv", ["id", "said", "way"], rows())
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
    found = guess(written(tmp_path / "t.csv", ["id", "said", "way"], rows(), separator))
    assert found.data["train"]["delimiter"] == separator
    assert "--data.train.delimiter" in {one.option for one in found.decisions}


def test_a_table_without_a_header_has_numbers_for_columns(tmp_path):
    path = written(tmp_path / "t.tsv", [], [[f'{LONG} "{i}', 1 - i % 2] for i in range(20)], "\t")
    found = guess(path)
    assert found.data["train"] == {"kind": "table", "path": str(path), "header": False, "text": 0}
    assert found.data["label"] == 1
    assert guess(path, given={"text": "0", "label": "1"}).data == found.data
    assert path.read_text(encoding="utf-8").splitlines()[0].endswith("\t1")  # A cell of a row is no name of a column.


def test_json_lines_and_parquet_say_their_columns(tmp_path):
    records = [{"said": f"{LONG} {i}", "ways": ["up"] if i % 2 else ["up", "down"]} for i in range(20)]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    found = guess(path)
    assert (found.data["train"]["text"], found.data["problem_type"]) == ("said", "multi_label_classification")
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "t.parquet")
    found = guess(tmp_path / "t.parquet", given={"label": "ways"})
    assert (found.data["train"]["text"], found.data["label"]) == ("said", "ways")


def test_files_beside_that_of_training_are_used_if_they_suit(tmp_path):
    header = ["said", "way"]
    train = written(tmp_path / "x_train.csv", header, [row[1:] for row in rows()])
    dev = written(tmp_path / "x_dev.csv", header, [row[1:] for row in rows(4)])
    written(tmp_path / "x_test.csv", header, [["a b", "else"], ["c d", "up"]])
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
    (tmp_path / "t.csv").write_text(lines, encoding="utf-8")
    with pytest.raises(UserError) as error:
        guess(tmp_path / "t.csv", given=given)
    assert told in str(error.value)


def test_a_table_is_known_by_its_name():
    assert all(map(is_table, ("a.csv", "a.TSV", "a.jsonl", "a.parquet", "a.csv.gz")))
    assert not any(map(is_table, ("translation", "a.toml", "csv", "a.txt")))
