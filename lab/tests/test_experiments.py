"""The frame of the experiments: verdicts from thresholds, partial results, files, and each experiment once in small."""

import json
import math
from collections.abc import Iterator
from importlib import import_module

import pytest

from clearhead.cli import main
from clearhead.errors import UserError
from clearhead_lab import classifiers
from clearhead_lab.datasets import VARIABLE
from clearhead_lab.experiment import Check, Experiment, Figures, Plot, Result, Role, Row
from clearhead_lab.experiments import experiment, experiments
from clearhead_lab.learning import learn
from clearhead_lab.reporting import points, report
from clearhead_lab.running import FILE, check_needs, run

LONG = ("batch-norm", "ffn-memory", "contextual-words", "extrapolation", "addition", "lora", "distance", "preference")
"""Experiments that take a second or more even in small."""


def made(measure=None, checks=(), needs=()) -> Experiment:
    def two_rows(seed: int, _: bool) -> Iterator[Row]:
        for x in (1.0, 2.0):
            yield Row({"x": x}, {"y": x + seed})

    return Experiment("made", "y is x", "here", measure or two_rows, checks, Plot("x", "y"), needs)


def result_of(*checks: Check, seeds=3) -> Result:
    figures = {seed: Figures([Row({"x": 1.0}, {"y": float(seed)})], 1.0, 0.5) for seed in range(seeds)}
    return Result(made(checks=checks), figures, quick=False, wanted=seeds)


def y_at_least(limit: float, role: Role = "claim") -> Check:
    return Check("y", lambda f: f.at("y", x=1.0), at_least=limit, role=role, otherwise=f"y is below {limit:g}.")


@pytest.mark.parametrize(
    ("checks", "verdict", "stable"),
    [
        ([y_at_least(0)], "holds", True),
        ([y_at_least(3)], "does not hold", True),
        ([y_at_least(1)], "holds with limits", False),  # two seeds of three
        ([y_at_least(2)], "does not hold", False),  # one seed of three
        ([y_at_least(0), y_at_least(3, "limit")], "holds with limits", True),
        ([y_at_least(0), y_at_least(2, "limit")], "holds with limits", False),  # two seeds alone hold with limits
        ([y_at_least(3), y_at_least(3, "control")], "undecided", True),
        ([y_at_least(0), y_at_least(1, "control")], "holds with limits", False),
    ],
)
def test_verdict_follows_from_thresholds(checks, verdict: str, stable: bool):
    result = result_of(*checks)
    assert (result.verdict, result.stable) == (verdict, stable)


def test_nan_passes_no_threshold():
    assert not y_at_least(0).passes(float("nan"))
    assert not Check("y", lambda _: 0.0, at_most=1.0).passes(float("nan"))


def test_report_states_figure_spread_and_threshold():
    text = "\n".join(report(result_of(y_at_least(1))))
    assert "~ y: 1 [0, 2], expected at least 1" in text
    assert "Verdict: holds with limits (3 seeds, which disagree: “holds” on 2, “does not hold” on 1, 3 s)\n" in text
    assert text.endswith("\ny is below 1. This is so on 1 of 3 seeds.")


def test_run_writes_figure_and_json(tmp_path):
    run(made(checks=[y_at_least(0)]), range(2), quick=True, folder=tmp_path, say=lambda _: None)
    kept = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert kept["verdict"] == "holds"
    assert [row["values"]["y"] for row in kept["rows"]] == [1.0, 2.0, 2.0, 3.0]
    assert "<svg" in (tmp_path / "figure.svg").read_text(encoding="utf-8")


def test_interrupted_run_keeps_finished_seeds(tmp_path):
    def measure(seed: int, _: bool) -> Iterator[Row]:
        yield Row({"x": 1.0}, {"y": 1.0})
        if seed == 1:
            raise KeyboardInterrupt

    result = run(made(measure, [y_at_least(0)]), range(3), quick=True, folder=tmp_path, say=lambda _: None)
    assert not result.finished
    assert list(result.seeds) == [0]
    assert json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))["seeds"] == [0]
    assert "1 of 3 seed" in "\n".join(report(result))


def test_a_run_goes_on_with_the_seeds_that_its_folder_holds(tmp_path):
    asked: list[int] = []

    def measure(seed: int, _: bool) -> Iterator[Row]:
        asked.append(seed)
        yield Row({"x": 1.0}, {"y": float(seed)})

    said: list[str] = []
    one = made(measure, [y_at_least(0)])
    run(one, range(2), quick=True, folder=tmp_path, say=said.append)
    again = run(one, range(3), quick=True, folder=tmp_path, say=said.append)
    assert asked == [0, 1, 2]
    assert [f.at("y") for f in again.seeds.values()] == [0, 1, 2]
    assert f"seed 1  kept from {tmp_path / FILE}" in said
    run(one, range(1), quick=False, folder=tmp_path, say=said.append)
    assert asked[3:] == [0], "other sizes are measured anew"
    assert said[-2].endswith("so every seed is measured anew")


def test_a_foreign_file_is_not_overwritten(tmp_path):
    (tmp_path / FILE).write_text('{"mine": 1}', encoding="utf-8")
    with pytest.raises(UserError, match="expected a result of lab run"):
        run(made(), [0], quick=True, folder=tmp_path, say=lambda _: None)
    assert (tmp_path / FILE).read_text(encoding="utf-8") == '{"mine": 1}'


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["heads"], "got 'heads'; try `clearhead lab run heads`"),
        (["exampels"], "got 'exampels'; try `clearhead lab examples`"),
        (["run"], "expected the names of experiments or all, got none"),
        (["run", "heads", "--seeds", "0"], "--seeds: expected 1 or more, got 0"),
        (["run", "heads", "--out", "{file}"], "file: expected to write there, got"),
        (["run", "heads", "--out", "{file}/below"], "below: expected to write there, got"),
        (["run", "few-labels", "--data", "{file}"], "file: expected a folder, got none"),
        (["table", "{file}"], "expected result.json or folders with one, as lab run writes, got none"),
        (["table", "{results}", "--into", "{file}/below"], "below: expected a page with the table's marks, got"),
    ],
)
def test_mistakes_are_found_before_anything_is_measured(options, message: str, tmp_path, capsys):
    (tmp_path / "file").write_text("", encoding="utf-8")
    run(experiment("position-shift"), [0], quick=True, folder=tmp_path / "results", say=lambda _: None)
    known = {name: str(tmp_path / name) for name in ("file", "results")}
    with pytest.raises(SystemExit) as stopped:
        main(["lab", *(one.format(**known) for one in options)])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_unknown_name_gets_the_nearest():
    with pytest.raises(UserError, match=r"got 'order_blindnes'; try order-blindness"):
        experiment("order_blindnes")


def test_missing_package_names_the_extra():
    with pytest.raises(
        UserError, match=r"expected no_such, got no such package; try pip install 'clearhead-lab\[experiments\]'"
    ):
        check_needs(made(needs=("no_such",)))


def test_list_names_claims_and_sources(capsys):
    main(["lab"])
    out = capsys.readouterr().out
    for one in experiments().values():
        assert f"  {one.name}\n      {one.claim}\n      {one.source}\n" in out


def test_examples_command_prints_json(capsys):
    main(["lab", "examples", "s3-05", "s2-17", "--json"])
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["printed"] == [7.09, 22.69]
    assert first["ours"] == pytest.approx([7.0711, 22.6274], rel=1e-4)
    assert (first["verdict"], second["verdict"]) == ("wrong", "wrong")


def test_examples_command_tells_what_is_wrong(capsys):
    main(["lab", "examples", "s0-11c", "s0-20"])
    out = capsys.readouterr().out
    assert "✗ s0-11c" in out
    assert "\n               printed: 0.0002\n               here:    3.815e-06\n" in out
    assert "2 records: 1 wrong, 1 that cannot be checked." in out
    assert max(map(len, out.splitlines())) <= 110


def test_run_command(capsys, tmp_path):
    main(["lab", "run", "position-shift", "--quick", "--seeds", "1", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert "Claim: A shift by k positions" in out
    assert "Verdict: holds with limits (1 seed, quick" in out
    assert (tmp_path / "result.json").exists()


@pytest.mark.usefixtures("data_folder")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in experiments()]
)
def test_every_check_has_its_figure(name: str, monkeypatch, tmp_path):
    """Each experiment once, with two steps of training: what it yields is what its checks and its plot read."""
    one = experiment(name)
    module = import_module(one.measure.__module__)
    if "learn" in vars(module):
        monkeypatch.setattr(module, "learn", lambda network, batch, **_: learn(network, batch, steps=2))
    monkeypatch.setattr(classifiers, "STRENGTHS", [1.0])
    result = run(one, [0], quick=True, folder=tmp_path, say=lambda _: None)
    assert result.finished
    assert all(math.isfinite(value) for judged in result.judgements for value in judged.values)
    assert points(result)


@pytest.mark.slow
@pytest.mark.parametrize("name", experiments())
def test_verdict_is_stable(name: str, request, monkeypatch):
    if experiment(name).data:
        monkeypatch.setenv(VARIABLE, str(request.getfixturevalue("shared_data")))
    result = run(experiment(name), range(2), quick=True, folder=None, say=lambda _: None)
    assert result.finished
    assert result.stable, "\n".join(report(result))
