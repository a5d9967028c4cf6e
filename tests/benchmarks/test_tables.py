"""The program that measures what `clearhead train FILE` makes of published tables."""

from pathlib import Path

import pytest

from benchmarks.tables import judge, measure

RIGHT = {"task": "classification", "text": "body", "label": "topic", "labels": 2, "rows": 40}


@pytest.mark.parametrize(
    ("header", "differs", "verdict", "why"),
    [
        ("body,topic", {}, "right", "text body, label topic"),
        ("body,topic", {"text": "topic", "label": "body"}, "wrong", "text: expected topic, got body"),
        ("body,pet,mood", {"label": "pet"}, "named", "--label pet |"),
        ("body", {}, "stopped", "error: "),
        (None, {}, "missing", "copy data/pets.csv of github.com/we/pets to"),
    ],
)
def test_each_verdict(header: str | None, differs: dict[str, str], verdict: str, why: str, tmp_path):
    folder = tmp_path / "tables"  # The folder of a test has the names of the columns, which would decide.
    folder.mkdir()
    if header:
        cells = [(f"The {name} sleeps by house {i}.", name, f"{i % 3}") for i in range(20) for name in ("cat", "dog")]
        rows = [",".join(row[: header.count(",") + 1]) for row in cells]
        Path(folder, "pets.csv").write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    table = {"name": "pets", "source": "we/pets", "path": "data/pets.csv", "file": "pets.csv", **RIGHT, **differs}
    judged = judge(table, folder, steps=0, seconds=120)
    assert judged.verdict == verdict
    assert why in judged.why


def test_training_compares_rows_and_labels(tmp_path):
    rows = [f"The {name} sleeps by house {i}.,{name}" for i in range(20) for name in ("cat", "dog")]
    Path(tmp_path, "pets.csv").write_text("\n".join(["body,topic", *rows, ""]), encoding="utf-8")
    table = {"name": "pets", "source": "we/pets", "path": "pets.csv", "file": "pets.csv", **RIGHT}
    assert judge(table, tmp_path, steps=1, seconds=120).verdict == "right"
    judged = judge(table | {"rows": 41, "labels": 3}, tmp_path, steps=1, seconds=120)
    assert judged.why == "labels: expected 3, got 2; rows: expected 41, got 40"


def test_a_missing_file_is_told_and_is_no_success(tmp_path, capsys):
    with pytest.raises(SystemExit):
        measure("trec", folder=tmp_path)
    assert "missing    trec               copy data/raw/TREC.train -> train_5500.label of " in capsys.readouterr().out
