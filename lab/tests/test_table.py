"""The table of all experiments: what it says of each result, and the page that it stands in."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearhead.cli import main
from clearhead.errors import UserError
from clearhead_lab import experiments as registry
from clearhead_lab.experiment import Check, Experiment, Plot, Role, Row
from clearhead_lab.experiments import experiments
from clearhead_lab.running import run
from clearhead_lab.table import BEGIN, END, kept, lines, put_into

DOCS = Path(__file__).resolve().parents[2] / "docs" / "lab.md"


def made(name: str, *checks: Check, stops: bool = False) -> Experiment:
    def measure(seed: int, _: bool) -> Iterator[Row]:
        yield Row({"x": 1.0}, {"y": float(seed)})
        if stops and seed == 1:
            raise KeyboardInterrupt

    return Experiment(name, f"{name} is so.", "Here.", measure, checks, Plot("x", "y"))


def y_at_least(limit: float, what: str = "y", role: Role = "claim") -> Check:
    return Check(what, lambda f: f.at("y"), at_least=limit, role=role, otherwise=f"{what} is low.")


def by_name(*chosen: Experiment) -> dict[str, Experiment]:
    return {one.name: one for one in chosen}


def table_of(folder: Path, *chosen: Experiment) -> list[str]:
    for one in chosen:
        run(one, range(3), quick=False, folder=folder / one.name, say=lambda _: None)
    return list(lines(by_name(*chosen), kept(folder, by_name(*chosen))))


def test_table_shows_the_check_that_decides(tmp_path):
    holds = made("holds", y_at_least(0, "ready", "control"), y_at_least(0, "first"), y_at_least(0, "second"))
    limited = made("limited", y_at_least(0), y_at_least(9, "bound", "limit"))
    refuted = made("refuted", y_at_least(9, "bound", "limit"), y_at_least(0), y_at_least(5, "core"))
    broken = made("broken", y_at_least(9, "core"), y_at_least(9, "ready", "control"))
    rows = table_of(tmp_path, holds, limited, refuted, broken)
    assert rows[2].startswith("| **holds**: holds is so. *Here.* | holds | *first: 1 [0, 2], expected at")
    assert rows[2].endswith("least 0* | 3 | yes | 0 s a seed |")
    fails = "1 [0, 2]. The check fails, because it asks for at least"
    assert f"| holds with limits | bound is low. *bound: {fails} 9* | 3 | yes |" in rows[3]
    assert f"| does not hold | core is low. *core: {fails} 5* | 3 | yes |" in rows[4]
    assert "| undecided | A control fails: the experiment does not work as it should" in rows[5]
    assert rows[-1].startswith("4 of 4 experiments were run, in 0 minutes of processor time. 4 of the 4 verdicts")
    assert rows[-1].endswith("4 of the 4 verdicts that come from several seeds are the same on every seed.")


def test_table_says_where_seeds_disagree(tmp_path):
    shaky, mixed = made("shaky", y_at_least(1, "core")), made("mixed", y_at_least(5, "core"), y_at_least(1, "side"))
    rows = table_of(tmp_path, shaky, mixed)
    assert "| core is low. This is so on 1 of 3 seeds. *core: 1 [0, 2], expected at least 1* |" in rows[2]
    said = "the verdict is “holds” on 2, “does not hold” on 1 of 3 seeds. The check “core” passes on 2 of 3 seeds"
    assert f"| **no**: {said} |" in rows[2]
    assert "| yes: the verdict is the same on every seed. The check “side” passes on 2 of 3 seeds |" in rows[3]
    assert rows[-1].endswith("1 of the 2 verdicts that come from several seeds are the same on every seed.")


def test_table_says_what_is_missing(tmp_path):
    both = by_name(stopped := made("stopped", y_at_least(0), stops=True), made("never", y_at_least(0)))
    run(stopped, range(3), quick=True, folder=tmp_path / "stopped", say=lambda _: None)
    rows = list(lines(both, kept(tmp_path, both)))
    assert rows[2].endswith("*y: 0, expected at least 0* | 1 of 3, quick | unknown | 0 s a seed |")
    assert rows[3] == "| **never**: never is so. *Here.* | not measured |  |  |  |  |"
    assert rows[-1].endswith("One seed does not say whether a verdict is stable.")


def test_thresholds_of_today_judge_what_was_measured_before(tmp_path, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr("clearhead_lab.running.__version__", "0.1.0")
        table_of(tmp_path, made("one", y_at_least(0)))
    stricter = by_name(made("one", y_at_least(9)))
    assert kept(tmp_path, stricter)["one"].verdict == "does not hold"
    assert kept(tmp_path / "one", stricter)["one"].verdict == "does not hold", "the folder of one experiment"


def test_result_of_another_version_is_refused(tmp_path):
    one = made("one", y_at_least(0))
    table_of(tmp_path, one)
    with pytest.raises(UserError, match=r"result\.json: expected an experiment of this version, got 'one'"):
        kept(tmp_path, by_name(made("two")))
    renamed = made("one", Check("z", lambda f: f.at("z"), at_least=0))
    with pytest.raises(
        UserError, match=r"result\.json: expected the figures of one, got others; try `clearhead lab run"
    ):
        kept(tmp_path, by_name(renamed))
    path = tmp_path / "one" / "result.json"
    document = json.loads(path.read_text(encoding="utf-8")) | {"design": "0"}
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(UserError, match=r"expected a result of this version of one, got one of another"):
        kept(tmp_path, by_name(one))


def test_two_results_of_one_experiment_are_refused(tmp_path):
    one = made("one", y_at_least(0))
    for folder in (tmp_path / "a", tmp_path / "b"):
        run(one, [0], quick=True, folder=folder, say=lambda _: None)
    with pytest.raises(UserError, match=r"b/result\.json: expected one result of one, got a second one"):
        kept(tmp_path, by_name(one))


def test_table_goes_between_the_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    put_into(page, "new")
    assert page.read_text(encoding="utf-8") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


@pytest.mark.parametrize("text", ["no marks", BEGIN, f"{END} {BEGIN}"])
def test_page_without_marks_is_left_alone(tmp_path, text: str):
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"page\.md: expected the lines <!-- lab table: begin -->"):
        put_into(page, "new")
    assert page.read_text(encoding="utf-8") == text


def test_folder_without_results_names_the_command(tmp_path):
    with pytest.raises(
        UserError, match=r"expected result\.json or folders with one, .* got none; try `clearhead lab run all"
    ):
        kept(tmp_path, {})


@pytest.mark.parametrize("content", ["{", "{}", '{"experiment": "heads"}'])
def test_file_that_is_no_result_is_named(tmp_path, content: str):
    (tmp_path / "heads").mkdir()
    (tmp_path / "heads" / "result.json").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"result\.json:\w+: expected a result of lab run, got"):
        kept(tmp_path, {})


def test_documented_table_is_of_experiments_as_they_are():
    text = DOCS.read_text(encoding="utf-8")
    rows = text.partition(BEGIN)[2].partition(END)[0].splitlines()[3:]
    found = [row.split(" | ")[0] for row in rows if row.startswith("| **")]
    assert found
    assert set(found) <= {f"| **{one.name}**: {one.claim} *{one.source}*" for one in experiments().values()}


def test_the_page_names_the_experiments_that_read_the_manual():
    _, _, listed = DOCS.read_text(encoding="utf-8").partition("Twelve experiments train")
    named = {*re.findall(r"`([\w-]+)`", listed.partition(" also read ")[0])}
    assert named == {
        one.name for one in experiments().values() if "manual" in vars(sys.modules[one.measure.__module__])
    }


def test_interrupted_run_of_all_says_what_it_keeps(monkeypatch, tmp_path, capsys):
    chosen = [made("one", y_at_least(0)), made("two", y_at_least(0), stops=True), made("three", y_at_least(0))]
    monkeypatch.setattr(registry, "experiments", lambda: {one.name: one for one in chosen})
    with pytest.raises(SystemExit) as stopped:
        main(["lab", "run", "all", "--seeds", "2", "--out", str(tmp_path)])
    printed = capsys.readouterr()
    assert stopped.value.code == 130
    assert f"kept 1 of 3 experiments, and 1 of 2 seeds of two, in {tmp_path}" in printed.err
    assert "the same command with --out" in printed.err
    assert "one" in printed.out.splitlines()[-3]
    assert sorted(path.parent.name for path in tmp_path.glob("*/result.json")) == ["one", "two"]
    assert json.loads((tmp_path / "two" / "result.json").read_text(encoding="utf-8"))["finished"] is False
    main(["lab", "table", str(tmp_path)])
    assert "| **three**: three is so. *Here.* | not measured |" in capsys.readouterr().out
