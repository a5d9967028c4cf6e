import json
from pathlib import Path

import pytest

from clearhead.data.guessing import guess, is_table
from clearhead.errors import UserError

LONG = "some words of a text that says a little more than a label"


LABELS_TWICE = "said,way,more\n" + "".join(f"{LONG} {i},{i % 2},{i % 3}\n" for i in range(20))
TEXTS_TWICE = "said,way,more\n" + "".join(f"{LONG} {i},{i % 2},{LONG}\n" for i in range(20))


def written(path: Path, header: list[str], rows: list[list[object]], separator: str = ",") -> Path:
    lines = [header, *rows] if header else rows
    path.write_text("\n".join(separator.join(map(str, line)) for line in lines), encoding="utf-8")
    return path


def rows(n: int = 20) -> list[list[object]]:
    return [[i, f"{LONG} {i}", "up" if i % 2 else "down"] for i in range(n)]


def test_columns_are_found_by_what_is_in_them(tmp_path: Path):
    path = written(tmp_path / "t.csv", ["id", "said", "way"], rows())
    found = guess(path)
    assert found.tables == {
        "train": {"kind": "table", "path": str(path), "header": True, "text": "said"},
        "label": "way",
        "problem_type": "single_label_classification",
    }
    assert found.reasons == [
        "text: column 'said' (the longest texts, 14 words a row); another with --text",
        "label: column 'way' (its values repeat, 2 values in 20 rows); another with --label",
        "task: single label classification (2 labels); another with --data.problem_type",
    ]


@pytest.mark.parametrize(("separator", "name"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
def test_a_separator_that_the_name_does_not_say_is_found(separator: str, name: str, tmp_path: Path):
    found = guess(written(tmp_path / "t.csv", ["id", "said", "way"], rows(), separator))
    assert found.tables["train"]["delimiter"] == separator
    assert found.reasons[0] == f"columns: {name} between them; another with --data.train.delimiter"


def test_a_field_that_never_ends_is_one_line(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text('text\n"' + "a" * 200_000, encoding="utf-8")
    with pytest.raises(UserError, match=r"t.csv:1: expected columns between commas, .*, got one; add its labels"):
        guess(path)


def test_a_table_without_a_header_has_numbers_for_columns(tmp_path: Path):
    path = written(tmp_path / "t.tsv", [], [[f'{LONG} "{i}', i % 2] for i in range(20)], "\t")
    found = guess(path)
    assert found.tables["train"] == {"kind": "table", "path": str(path), "header": False, "text": 0}
    assert found.tables["label"] == 1
    assert found.reasons[0].startswith("header: none")
    assert guess(path, text="0", label="1").tables == found.tables


def test_json_lines_and_parquet_say_their_columns(tmp_path: Path):
    records = [{"said": f"{LONG} {i}", "ways": ["up"] if i % 2 else ["up", "down"]} for i in range(20)]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    found = guess(path, label="ways")
    assert (found.tables["train"]["text"], found.tables["problem_type"]) == ("said", "multi_label_classification")
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "t.parquet")
    found = guess(tmp_path / "t.parquet", label="ways")
    assert (found.tables["train"]["text"], found.tables["label"]) == ("said", "ways")


def test_many_different_numbers_are_a_regression(tmp_path: Path):
    path = written(tmp_path / "t.csv", ["said", "score"], [[f"{LONG} {i}", i / 7] for i in range(60)])
    assert guess(path).tables["problem_type"] == "regression"


def test_decimal_numbers_are_a_label_and_an_index_is_none(tmp_path: Path):
    found = guess(written(tmp_path / "t.csv", ["id", "said", "stars"], [[i, f"{LONG} {i}", i / 7] for i in range(30)]))
    assert (found.tables["label"], found.tables["problem_type"]) == ("stars", "regression")
    assert "label: column 'stars' (the only column of decimal numbers); another with --label" in found.reasons
    with pytest.raises(UserError, match="expected a column of labels, got none whose values repeat"):
        guess(written(tmp_path / "u.csv", ["id", "said"], [[i, f"{LONG} {i}"] for i in range(30)]))


@pytest.mark.parametrize(
    ("lines", "given", "told"),
    [
        (LABELS_TWICE, {}, ": expected one column of labels, got way, more; give --label NAME"),
        (TEXTS_TWICE, {}, ": expected one column of texts, got said, more; give --text NAME, and"),
        ("one column\na text here\n", {}, ":1: expected columns between commas, semicolons, tabs, bars, got one; add"),
        ("text,label\na b,x\n", {"label": "lable"}, ":1: expected a column 'lable', got none; try label"),
        ("a,b\n1,2\n3,4\n", {}, ": expected a column of texts, got only numbers; give --text NAME"),
        ("text,id\na b c,1\na c d,2\nd e f,3\n", {}, ": expected a column of labels, got none whose values repeat"),
    ],
)
def test_a_table_that_is_none_is_told(lines: str, given: dict[str, str], told: str, tmp_path: Path):
    (tmp_path / "t.csv").write_text(lines, encoding="utf-8")
    with pytest.raises(UserError) as error:
        guess(tmp_path / "t.csv", **given)
    assert told in str(error.value)


def test_a_table_is_known_by_its_name():
    assert all(map(is_table, ("a.csv", "a.TSV", "a.jsonl", "a.parquet", "a.csv.gz")))
    assert not any(map(is_table, ("translation", "a.toml", "csv", "a.txt")))
