"""Grading trusts no file: it recomputes every judgement, and says in one line what cannot be graded."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.errors import UserError
from clearhead_lab.exercise_commands import grade
from clearhead_lab.exercises.exercise import FORMAT
from clearhead_lab.exercises.grading import LIMIT, graded
from clearhead_lab.exercises.sets import SETS
from lab.tests.exercises.learners import learners

LOOKING = SETS["looking"]()
AT = "decoder.blocks.0.attn"


@pytest.fixture
def state() -> dict[str, Any]:
    """What a page exports after a right and a wrong answer."""
    given = {one.expected: one for one in learners(LOOKING, 1) if one.exercise == "look-back"}
    answers = {"look-back": given["right"].answer, "share": {"number": 0.5}}
    own = {"version": LOOKING.version, "answers": answers, "judged": {"look-back": "right", "share": "without-itself"}}
    return {"format": FORMAT, "sets": {"looking": own}}


def _written(path: Path, state: object) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(state), encoding="utf-8")
    return path


def test_grading_recomputes_every_judgement(state: dict[str, Any], tmp_path):
    found = {grade.exercise: grade for grade in graded(_written(tmp_path / "a.json", state)).grades}
    assert list(found) == [one.name for one in LOOKING.exercises]
    assert found["look-back"].is_right
    assert found["share"].judgement == "without-itself"
    assert found["share"].says.startswith("A word reads itself too")
    assert found["average"].judgement is None
    assert not any(grade.is_told_otherwise for grade in found.values())
    state["sets"]["looking"]["judged"]["share"] = "right"
    edited = {grade.exercise: grade for grade in graded(_written(tmp_path / "b.json", state)).grades}
    assert edited["share"].judgement == "without-itself"
    assert edited["share"].is_told_otherwise
    del state["sets"]["looking"]["judged"]["share"]
    silent = {grade.exercise: grade for grade in graded(_written(tmp_path / "c.json", state)).grades}
    assert silent["share"].judgement == "without-itself"
    assert not silent["share"].is_told_otherwise, "a file that claims nothing claims nothing wrong"


def test_answers_that_do_not_fit_the_model_are_graded_so(state: dict[str, Any], tmp_path):
    """An answer that was edited by hand costs its own exercise, and no other."""
    answers = state["sets"]["looking"]["answers"]
    answers["look-first"] = {"edits": [{"at": f"{AT}.scores[h=9]", "do": "zero"}]}
    answers["average"] = {"edits": [{"at": f"{AT}.gone", "do": "zero"}]}
    answers["silence-head"] = {"edits": [{"at": f"{AT}.z[h=1]", "do": "scale", "value": 3e38}]}
    answers["which-looks-back"] = {"choice": 99}
    answers["attention-is-not-effect"] = {"number": 2}
    names = {one.name for one in LOOKING.exercises}
    assert set(answers) <= names
    said = {grade.exercise: grade for grade in graded(_written(tmp_path / "a.json", state)).grades}
    assert said["look-first"].judgement == "fails"
    outside = ("average", "silence-head", "which-looks-back", "attention-is-not-effect")
    assert {said[name].judgement for name in outside} == {"outside"}
    assert all(said[name].says for name in outside)
    assert said["look-back"].is_right


def _problem(path: Path) -> str:
    """The one line that is said of a file of one set."""
    (problem,) = graded(path).problems
    assert "\n" not in problem
    return problem


def test_a_file_that_cannot_be_graded_is_one_line(state: dict[str, Any], tmp_path):
    own = state["sets"]["looking"]
    wrong: list[tuple[object, str]] = [
        ({**state, "format": "clearhead-exercises/0"}, "expected clearhead-exercises/1"),
        ([], "expected a JSON object"),
        ({"loss": 3}, "expected clearhead-exercises/1, a file of answers"),
        ({**state, "sets": {}}, "expected some of positions"),
        ({**state, "sets": {"looks": own}}, "got 'looks'"),
        (
            {**state, "sets": {"looking": {**own, "version": "000000000000"}}},
            "the version of these exercises, got '000000000000'; install the clearhead that made the page",
        ),
        (
            {**state, "sets": {"looking": {**own, "version": "000000000000", "clearhead": "0.0.7"}}},
            "install clearhead 0.0.7 to grade it",
        ),
        (
            {**state, "sets": {"looking": {**own, "answers": {"look-up": {}}}}},
            "expected exercises of this set, got 'look-up'",
        ),
        (
            {**state, "sets": {"looking": {**own, "judged": {"average": "right"}}}},
            "judged.average: expected an answer to it, got none",
        ),
        ({**state, "sets": {"looking": {**own, "answers": {"share": {"number": "0.5"}}}}}, "answers.share.number"),
        ({**state, "sets": {"looking": {**own, "answers": {"share": {"number": float("nan")}}}}}, "got NaN"),
        ({**state, "sets": {"looking": {**own, "answers": {"share": {"number": 10**400}}}}}, "infinity; export"),
    ]
    for document, message in wrong:
        assert message in _problem(_written(tmp_path / "state.json", document))
    assert "found none" in _problem(tmp_path / "absent.json")
    for content in ("{", "", "not JSON", "\x00"):
        (tmp_path / "text.json").write_text(content, encoding="utf-8")
        assert "text.json:1: expected JSON" in _problem(tmp_path / "text.json")
        assert "export it again from the page" in _problem(tmp_path / "text.json")
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(LIMIT + 1)
    assert "expected at most 4,194,304 bytes, got 4,194,305; export it again" in _problem(tmp_path / "large.json")


def test_sets_beside_one_that_cannot_be_graded_are_graded(state: dict[str, Any], tmp_path, capsys):
    state["sets"] = {"dancing": state["sets"]["looking"], **state["sets"]}
    with pytest.raises(UserError, match=r"a\.json:sets: expected some of positions, .*, got 'dancing'"):
        grade(_written(tmp_path / "a.json", state))
    said = capsys.readouterr().out
    assert "  ✓ Look one token back" in said
    assert "  ✗ One share of an average              without-itself: A word reads itself too" in said
    assert "  · What a score of zero means           no answer" in said
    assert said.endswith(f"\n1 of {len(LOOKING.exercises)} right.\n")


def test_a_class_is_a_table(state: dict[str, Any], tmp_path, capsys):
    """A row each, whatever the other files hold; what a file says of itself is a remark."""
    n = len(LOOKING.exercises)
    folder = tmp_path / "class"
    _written(folder / "ann.json", state)
    (folder / "ben.json").write_text("", encoding="utf-8")
    state["sets"]["looking"]["judged"]["share"] = "right"
    _written(folder / "cem.json", state)
    with pytest.raises(
        UserError, match=r"cem\.json:sets.looking.judged.share: expected without-itself, .* got 'right'"
    ):
        grade(folder, table=tmp_path / "table.csv")
    said = capsys.readouterr()
    rows = [line.split() for line in said.out.splitlines()]
    assert rows[0] == ["file", "looking", "right"]
    assert rows[1] == [str(folder / "ann.json"), f"1/{n}", "1"]
    assert rows[2] == [str(folder / "ben.json"), "–", "–", "not", "graded:", "1"]
    assert rows[3] == [str(folder / "cem.json"), f"1/{n}", "1", "judgements", "edited:", "1"]
    assert "  2 × looking/share: without-itself 2" in said.out
    assert "ben.json:1: expected JSON" in said.err
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == 2 * n
    assert {row["judgement"] for row in table} == {"right", "without-itself", ""}
    (folder / "sub").mkdir()
    with pytest.raises(UserError, match=r"sub: expected a folder of exported answers, found no \.json file"):
        grade(folder / "sub")
