"""The table of all experiments: what it says of each result, and the page that it stands in."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearhead.cli import main
from clearhead.errors import UserError
from clearhead.lab import experiments as registry
from clearhead.lab.experiment import Check, Experiment, Plot, Row
from clearhead.lab.experiments import experiments
from clearhead.lab.running import run
from clearhead.lab.table import BEGIN, END, kept, lines, put_into

DOCS = Path(__file__).resolve().parents[2] / "docs" / "lab.md"


def made(name: str, *checks: Check, stops: bool = False) -> Experiment:
    def measure(seed: int, _: bool) -> Iterator[Row]:
        yield Row({"x": 1.0}, {"y": float(seed)})
        if stops and seed == 1:
            raise KeyboardInterrupt

    return Experiment(name, f"{name} is so", "here", measure, checks, Plot("x", "y"))


def y_at_least(limit: float, what: str = "y", *, is_limit: bool = False) -> Check:
    return Check(what, lambda f: f.at("y"), at_least=limit, is_limit=is_limit)


def table_of(folder: Path, *chosen: Experiment) -> list[str]:
    for one in chosen:
        run(one, range(3), quick=False, folder=folder / one.name, say=lambda _: None)
    return list(lines(chosen, kept(folder)))


def test_table_shows_the_check_that_decides(tmp_path: Path) -> None:
    holds = made("holds", y_at_least(0, "first"), y_at_least(0, "second"))
    limited = made("limited", y_at_least(0), y_at_least(9, "bound", is_limit=True))
    refuted = made("refuted", y_at_least(9, "bound", is_limit=True), y_at_least(0), y_at_least(5, "core"))
    rows = table_of(tmp_path, holds, limited, refuted)[2:5]
    assert rows[0] == "| **holds**: holds is so | holds | first: 1 [0, 2], expected at least 0 | 3 | yes |"
    assert "| holds with limits | bound: 1 [0, 2], expected at least 9 (a limit) | 3 | yes |" in rows[1]
    assert "| does not hold | core: 1 [0, 2], expected at least 5 | 3 | yes |" in rows[2]


def test_table_says_where_seeds_disagree(tmp_path: Path) -> None:
    row = table_of(tmp_path, made("shaky", y_at_least(1, "core")))[2]
    assert "| holds with limits | core: 1 [0, 2], expected at least 1 | 3 | **no**: core (2 of 3 pass) |" in row


def test_table_says_what_is_missing(tmp_path: Path) -> None:
    stopped, never = made("stopped", y_at_least(0), stops=True), made("never", y_at_least(0))
    run(stopped, range(3), quick=True, folder=tmp_path / "stopped", say=lambda _: None)
    rows = list(lines([stopped, never], kept(tmp_path)))
    assert rows[2].endswith("| holds | y: 0, expected at least 0 | 1 of 3, quick | unknown |")
    assert rows[3] == "| **never**: never is so | not measured |  |  |  |"


def test_table_goes_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    put_into(page, "new")
    assert page.read_text(encoding="utf-8") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


@pytest.mark.parametrize("text", ["no marks", BEGIN, f"{END} {BEGIN}"])
def test_page_without_marks_is_left_alone(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"page\.md: expected the lines <!-- lab table: begin -->"):
        put_into(page, "new")
    assert page.read_text(encoding="utf-8") == text


def test_folder_without_results_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected folders with result\.json, got none; try lab run all --out"):
        kept(tmp_path)


@pytest.mark.parametrize("content", ["{", "{}", '{"experiment": "heads"}'])
def test_file_that_is_no_result_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "heads").mkdir()
    (tmp_path / "heads" / "result.json").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"result\.json:\w+: expected a result of lab run, got"):
        kept(tmp_path)


def test_documented_table_is_of_experiments_as_they_are() -> None:
    text = DOCS.read_text(encoding="utf-8")
    rows = text.partition(BEGIN)[2].partition(END)[0].splitlines()[3:]
    found = [row.split(" | ")[0] for row in rows if row.startswith("| **")]
    assert found
    assert set(found) <= {f"| **{one.name}**: {one.claim}" for one in experiments().values()}


def test_interrupted_run_of_all_says_what_it_keeps(monkeypatch, tmp_path: Path, capsys) -> None:
    chosen = [made("one", y_at_least(0)), made("two", y_at_least(0), stops=True), made("three", y_at_least(0))]
    monkeypatch.setattr(registry, "experiments", lambda: {one.name: one for one in chosen})
    with pytest.raises(SystemExit) as stopped:
        main(["lab", "run", "all", "--seeds", "2", "--out", str(tmp_path)])
    printed = capsys.readouterr()
    assert stopped.value.code == 130
    assert f"kept 1 of 3 experiments, and 1 of 2 seeds of two, in {tmp_path}" in printed.err
    assert "one" in printed.out.splitlines()[-3]
    assert sorted(path.parent.name for path in tmp_path.glob("*/result.json")) == ["one", "two"]
    assert json.loads((tmp_path / "two" / "result.json").read_text(encoding="utf-8"))["finished"] is False
    main(["lab", "table", str(tmp_path)])
    assert "| **three**: three is so | not measured |" in capsys.readouterr().out
