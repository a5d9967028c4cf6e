"""Rows in any form become the same file."""

import json
from datetime import date
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pytest

from clearhead.errors import UserError
from clearhead.session.frames import splits_in, write_rows

ROWS = [{"text": f"té {i}\n", "label": "ab"[i % 2], "n": i} for i in range(4)]
TUPLES = [tuple(row.values()) for row in ROWS]
NAMES = ["text", "label", "n"]


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        iter(ROWS),
        TUPLES,
        {name: [row[name] for row in ROWS] for name in NAMES},
        pd.DataFrame(ROWS),
        pd.DataFrame(ROWS, index=[7, 5, 5, 1]).astype({"label": "category", "n": "Int64"}),
        pl.DataFrame(ROWS),
        datasets.Dataset.from_list(ROWS),
        datasets.Dataset.from_list(ROWS).to_iterable_dataset(),
        [*pd.DataFrame(ROWS).itertuples(index=False)],
    ],
    ids=lambda data: f"{type(data).__module__.partition('.')[0]} {type(data).__name__}",
)
def test_every_form_is_one_file(data: object, tmp_path):
    path = write_rows(data, tmp_path / "new" / "rows.jsonl", names=NAMES)
    assert path.read_text("utf-8") == "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)


def test_the_numbers_of_a_dataset_are_named(tmp_path):
    features = datasets.Features(
        text=datasets.Value("string"),
        label=datasets.ClassLabel(names=["bad", "good"]),
        tags=datasets.List(datasets.ClassLabel(names=["O", "B"])),
    )
    rows: dict[str, list[Any]] = {"text": ["a", "b"], "label": [1, -1], "tags": [[0, 1], []]}
    path = write_rows(datasets.Dataset.from_dict(rows, features=features), tmp_path / "rows.jsonl")
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == [
        {"text": "a", "label": "good", "tags": ["O", "B"]},
        {"text": "b", "label": None, "tags": []},
    ]


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        (float("nan"), None),
        (np.float64("nan"), None),
        (pd.NA, None),
        (pd.NaT, None),
        (np.int64(3), 3),
        (np.array(["a", "b"]), ["a", "b"]),
        (date(2026, 1, 2), "2026-01-02"),
        ("\ud800", "\ud800"),
    ],
)
def test_cells_of_other_libraries(cell: object, written: object, tmp_path):
    path = write_rows([{"text": cell}], tmp_path / "rows.jsonl")
    assert json.loads(path.read_text("utf-8")) == {"text": written}


def test_rows_without_names(tmp_path):
    for rows, names in ((["one"], ["text"]), ([("a", "b")], ["text", "label"]), ([("a", "b", "c")], None)):
        written = json.loads(write_rows(rows, tmp_path / "rows.jsonl").read_text("utf-8"))
        assert [*written] == (names or ["text", "text_pair", "label"])


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([], "data: expected a frame of pandas or polars, a Dataset, a list of rows, or a path, got no rows"),
        (3, "data: expected a frame of pandas or polars, a Dataset, a list of rows, or a path, got int"),
        ([3], "data: expected rows that are dictionaries or tuples, got int"),
        ([("a",) * 5], "data: expected rows of 2 cells, got 5; give dictionaries"),
        ([{"a": 1}, {"a": {1}}], "data: row 2: expected texts, numbers, lists or dictionaries, got set"),
        ({"a": [1, 2], "b": [1]}, "data: expected columns of one length, got several"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "data: expected columns with different names, got a, a"),
    ],
)
def test_what_are_no_rows(data: object, error: str, tmp_path):
    with pytest.raises(UserError) as caught:
        write_rows(data, tmp_path / "rows.jsonl")
    assert str(caught.value) == error


def test_splits():
    parts: dict[str, Any] = {"train": 1, "validation": 2, "test": 3, "unsupervised": 4}
    assert splits_in(parts) == {"train": 1, "valid": 2, "test": 3}
    assert splits_in({"text": [1]}) == {"train": {"text": [1]}}
