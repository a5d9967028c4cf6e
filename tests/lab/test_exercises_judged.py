"""Every exercise judges simulated learners as they deserve; grading trusts no file."""

import json
from pathlib import Path
from typing import Any

import pytest

from clearhead import config as c
from clearhead.errors import UserError
from clearhead.lab.examples.parts import on_meta
from clearhead.lab.exercises import grading
from clearhead.lab.exercises.exercise import FORMAT, Answer
from clearhead.lab.exercises.judging import FAILS, NOTHING, OUTSIDE, RIGHT, Judge
from clearhead.lab.exercises.learners import learners, misjudged
from clearhead.lab.exercises.sets import SETS
from clearhead.lab.exercises.sets.knowing import COUNTS
from clearhead.model import Transformer

LOOKING = SETS["looking"]()
BACK = LOOKING.find("look-back")
AT = "decoder.blocks.0.attn"


@pytest.mark.parametrize("name", SETS)
def test_learners_are_judged_as_they_deserve(name: str) -> None:
    assert not [(one.exercise, one.expected, said) for one, said in misjudged(SETS[name](), 1)]


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_two_hundred_learners_of_each_way(name: str) -> None:
    assert not [(one, said) for one, said in misjudged(SETS[name](), 200, seed=1)]


def test_there_are_at_least_sixty_and_each_knows_three_wrong_ways() -> None:
    exercises = [one for build in SETS.values() for one in build().exercises]
    assert len(exercises) >= 60
    assert len({one.name for one in exercises}) == len(exercises)
    for one in exercises:
        names = [wrong.name for wrong in one.wrong]
        assert len(set(names)) == len(names) >= 3, one.name
        assert not {RIGHT, NOTHING, OUTSIDE} & set(names), one.name
        assert len({wrong.says for wrong in one.wrong}) == len(names), one.name


def test_every_question_of_the_documents_is_there() -> None:
    sources = " ".join(one.source for build in SETS.values() for one in build().exercises)
    for n in range(1, 7):
        assert f"001, reflection question {n}" in sources
    for n in (1, 2, 3):
        assert f"001, practice problem {n}" in sources
    for n in (1, 2, 4, 5, 6, 7, 8):
        assert f"practice question {n} (positions)" in sources
    for n in range(2, 8):
        assert f"practice question {n} (norms)" in sources
    assert "004, quiz on attention, a and b" in sources
    assert "004, quiz on attention, c and d" in sources


def _said(**answer: Any) -> str:
    assert BACK is not None
    return Judge(BACK, LOOKING.models[BACK.model])(Answer.model_validate(answer))


def test_what_is_no_answer_or_not_allowed_is_named() -> None:
    assert _said() == NOTHING
    assert _said(number=3.0) == OUTSIDE
    assert _said(edits=[{"at": f"{AT}.z", "do": "zero"}]) == OUTSIDE
    assert _said(edits=[{"at": f"{AT}.scores", "do": "mean"}]) == OUTSIDE
    assert _said(edits=[{"at": f"{AT}.scores", "do": "set", "value": 1e5}]) == OUTSIDE
    assert _said(change={"positions": "none"}) == OUTSIDE
    assert _said(edits=[{"at": f"{AT}.scores[h=0]", "do": "close"}]) == FAILS
    assert _said(edits=[{"at": f"{AT}.scores[h=9]", "do": "zero"}]) == FAILS


def test_counted_parameters_are_those_of_the_engine() -> None:
    def size(layers: int, changes: dict[str, Any], *, tied: bool = True) -> int:
        base: dict[str, Any] = dict(
            d_model=768, n_layers=layers, n_heads=12, d_ff=3072, input=c.TokenInput(vocab_size=50_257)
        )
        config = c.StackConfig(**(base | {"positions": c.Learned(max_length=1024)} | changes))
        network = on_meta(lambda: Transformer(c.ModelConfig(decoder=config, head=c.LanguageHead(tied=tied))))
        return sum(parameter.numel() for parameter in network.parameters())

    found = [size(1, {}), size(1, {}, tied=False), size(1, {"positions": c.NoPositions()}), size(1, {"bias": False})]
    one_block = [size(2, how) - size(1, how) for how in ({}, {"bias": False})]
    assert tuple(n + 11 * one_block[i == 3] for i, n in enumerate(found)) == COUNTS


# --- grading ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def state() -> dict[str, Any]:
    """What a page exports after a right and a wrong answer."""
    given = {one.expected: one for one in learners(LOOKING, 1) if one.exercise == "look-back"}
    answers = {"look-back": given["right"].answer, "share": {"number": 0.5}}
    own = {"version": LOOKING.version, "answers": answers, "judged": {"look-back": "right", "share": "without-itself"}}
    return {"format": FORMAT, "sets": {"looking": own}}


def _written(path: Path, state: object) -> Path:
    path.write_text(json.dumps(state), encoding="utf-8")
    return path


def test_grading_recomputes_every_judgement(state: dict[str, Any], tmp_path: Path) -> None:
    found = {grade.exercise: grade for grade in grading.grades(_written(tmp_path / "a.json", state))}
    assert list(found) == [one.name for one in LOOKING.exercises]
    assert found["look-back"].is_right
    assert found["share"].judgement == "without-itself"
    assert found["average"].judgement is None
    assert not any(grade.is_told_otherwise for grade in found.values())
    state["sets"]["looking"]["judged"]["share"] = "right"
    edited = {grade.exercise: grade for grade in grading.grades(_written(tmp_path / "b.json", state))}
    assert edited["share"].judgement == "without-itself"
    assert edited["share"].is_told_otherwise


def test_a_file_that_cannot_be_graded_is_one_line(state: dict[str, Any], tmp_path: Path) -> None:
    own = state["sets"]["looking"]
    wrong: list[tuple[object, str]] = [
        ({**state, "format": "clearhead-exercises/0"}, "expected clearhead-exercises/1"),
        ([], "expected a JSON object"),
        ({"loss": 3}, "expected clearhead-exercises/1, a file of answers"),
        ({**state, "sets": {}}, "expected some of positions"),
        ({**state, "sets": {"looks": own}}, "got 'looks'"),
        (
            {**state, "sets": {"looking": {**own, "version": "000000000000"}}},
            "the version of these exercises, got '000000000000'",
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
    ]
    for document, message in wrong:
        with pytest.raises(UserError, match=message) as raised:
            list(grading.grades(_written(tmp_path / "state.json", document)))
        assert "\n" not in str(raised.value)
    with pytest.raises(UserError, match="found none"):
        list(grading.grades(tmp_path / "absent.json"))
    (tmp_path / "text.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match=r"text\.json"):
        list(grading.grades(tmp_path / "text.json"))
