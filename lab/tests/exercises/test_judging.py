"""Every exercise judges simulated learners as they deserve."""

from itertools import count
from typing import Any

import pytest

from clearhead import config as c
from clearhead.model import Transformer
from clearhead_lab.examples.parts import on_meta
from clearhead_lab.exercises.exercise import SLIPS, Answer
from clearhead_lab.exercises.judging import FAILS, NOTHING, OTHER, OUTSIDE, RIGHT, Judge
from clearhead_lab.exercises.sets import SETS
from lab.tests.exercises.learners import misjudged, slipped, undecided, ways
from lab.tests.exercises.spellings import answers

LOOKING = SETS["looking"]()
BACK = LOOKING.find("look-back")
AT = "decoder.blocks.0.attn"
TOGETHER = {
    # Each does half of the task.
    ("causal-mask", "one-head", "one-head"),
    ("causal-mask", "some-pairs", "some-pairs"),
    ("do-nothing", "attention-left", "ffn-left"),
    ("english-order", "twice-the-adjective", "twice-the-noun"),
    ("name-itself", "silent", "before"),
    ("order-through-the-mask", "one-head", "one-head"),
    ("padding-mask", "one-head", "one-head"),
    # The new fact is written weakly, but the old one is gone.
    ("change-a-fact", "forgotten", "old-wins"),
}
"""Two wrong ways, or one in two places, that are right together."""


@pytest.mark.parametrize("name", SETS)
def test_learners_are_judged_as_they_deserve(name: str):
    assert not [(one.exercise, one.expected, said) for one, said in misjudged(SETS[name](), 1)]


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_two_hundred_learners_of_each_way(name: str):
    assert not [(one, said) for one, said in misjudged(SETS[name](), 200, seed=1)]


@pytest.mark.parametrize("name", SETS)
def test_a_slip_in_a_number_is_named(name: str):
    """By its name, or by that of a known wrong way to the same number."""
    given = SETS[name]()
    for slip, learner in slipped(given):
        one = given.find(learner.exercise)
        assert one is not None
        assert learner.expected in {slip, *(wrong.name for wrong in one.wrong)}, learner


def test_400_answers_are_judged_by_what_they_are_made_for():
    """The page reads their texts, and must say the same: ui/test/judge/judge.test.ts."""
    spelled, n = count(), 0
    for build in SETS.values():
        given = build()
        for one, _, said in answers(given, spelled):
            exercise, n = given.find(one.exercise), n + 1
            assert exercise is not None
            ways_to_it = {wrong.name for wrong in exercise.wrong}
            near = {OTHER: {*SLIPS, OTHER} | ways_to_it, **{slip: {slip} | ways_to_it for slip in SLIPS}}
            assert said in near.get(one.expected, {one.expected}), one
    assert n == 400


def test_a_number_near_nought_is_no_slip():
    given = SETS["knowing"]()
    one = given.find("relu")
    assert one is not None
    assert Judge(one, given.models[one.model])(Answer(number=0.05)) == OTHER


def test_there_are_at_least_sixty_and_each_knows_three_wrong_ways():
    exercises = [one for build in SETS.values() for one in build().exercises]
    assert len(exercises) >= 60
    assert len({one.name for one in exercises}) == len(exercises)
    answers = {name: own for given in SETS for name, own in ways(given).items()}
    for one in exercises:
        names = [wrong.name for wrong in one.wrong]
        assert [*answers[one.name]] == [RIGHT, *names]
        assert len(set(names)) == len(names) >= 3, one.name
        assert not {RIGHT, NOTHING, OUTSIDE} & set(names), one.name
        assert len({wrong.says for wrong in one.wrong}) == len(names), one.name


def test_every_question_of_the_documents_is_there():
    sources = " ".join(one.source for build in SETS.values() for one in build().exercises)
    for n in range(1, 7):
        assert f"001, reflection question {n}" in sources
    for n in (1, 2, 3):
        assert f"001, practice problem {n}" in sources
    for n in (1, 2, 4, 5, 6, 7, 8):
        assert f"practice question {n} (positions)" in sources
    for n in range(2, 8):
        assert f"practice question {n} (norms)" in sources
    for n in range(1, 5):
        assert f"003, question {n} on self-attention" in sources
        assert f"003, question {n} on scaling" in sources
    assert "004, quiz on attention, a and b" in sources
    assert "004, quiz on attention, c and d" in sources


def _said(**answer: Any) -> str:
    assert BACK is not None
    return Judge(BACK, LOOKING.models[BACK.model])(Answer.model_validate(answer))


def test_what_is_no_answer_or_not_allowed_is_named():
    assert _said() == NOTHING
    assert _said(number=3.0) == OUTSIDE
    assert _said(edits=[{"at": f"{AT}.z", "do": "zero"}]) == OUTSIDE
    assert _said(edits=[{"at": f"{AT}.scores", "do": "mean"}]) == OUTSIDE
    assert _said(edits=[{"at": f"{AT}.scores", "do": "set", "value": 1e5}]) == OUTSIDE
    assert _said(change={"positions": "none"}) == OUTSIDE
    assert _said(edits=[{"at": f"{AT}.scores[h=0]", "do": "close"}]) == FAILS
    assert _said(edits=[{"at": f"{AT}.scores[h=9]", "do": "zero"}]) == FAILS


def test_counted_parameters_are_those_of_the_engine():
    def size(layers: int, changes: dict[str, Any], *, tied: bool = True) -> int:
        base: dict[str, Any] = dict(
            d_model=768, n_layers=layers, n_heads=12, d_ff=3072, input=c.TokenInput(vocab_size=50_257)
        )
        config = c.StackConfig(**(base | {"positions": c.Learned(max_length=1024)} | changes))
        network = on_meta(lambda: Transformer(c.ModelConfig(decoder=config, head=c.LanguageHead(tied=tied))))
        return sum(parameter.numel() for parameter in network.parameters())

    found = [size(1, {}), size(1, {}, tied=False), size(1, {"positions": c.NoPositions()}), size(1, {"bias": False})]
    one_block = [size(2, how) - size(1, how) for how in ({}, {"bias": False})]
    given = [answers[0]["near"] for answers in ways("knowing")["count-a-model"].values()]
    assert given[:4] == [n + 11 * one_block[i == 3] for i, n in enumerate(found)]


def _both_wrong_and_right(n: int) -> set[tuple[str, str, str]]:
    """Exercises and two wrong ways whose edits together are judged right."""
    return {
        (learner.exercise, first, second)
        for build in SETS.values()
        for first, second, learner in undecided(build(), n)
        if learner.expected == RIGHT and first != RIGHT
    }


def test_two_wrong_ways_are_right_together_only_where_they_should_be():
    assert _both_wrong_and_right(1) <= TOGETHER


@pytest.mark.slow
def test_many_pairs_of_wrong_ways():
    assert _both_wrong_and_right(20) == TOGETHER
