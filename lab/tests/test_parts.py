"""What the experiments measure with: baselines, intervals, tasks and importance."""

from typing import get_args

import numpy as np
import pytest
import torch

from clearhead import config as c
from clearhead.model import Layout, Tokens
from clearhead.model.attention import Attention
from clearhead_lab.baselines import AdditiveAttention, Cell, Recurrent, Translator
from clearhead_lab.classifiers import counts, interval, mean_over_classes, predicted, resampled
from clearhead_lab.datasets import Word
from clearhead_lab.experiments.attention.attention_importance import by_gradient, margin, rank_correlation, taken_away
from clearhead_lab.experiments.cost.state_spaces import mix_time
from clearhead_lab.experiments.language import layer_roles, phrase_order
from clearhead_lab.experiments.words import programs, screenshots, tools
from clearhead_lab.experiments.words.distance import SYMBOLS, gradients
from clearhead_lab.experiments.words.induction import IGNORED, repeated, shots
from clearhead_lab.learning import encoder, stack

# --- baselines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", get_args(Cell))
def test_recurrent_reads_the_first_symbol_through_every_step(cell: Cell):
    first, last = gradients(Recurrent(cell, SYMBOLS, 8), length=6)
    assert 0 < first < last


@pytest.mark.parametrize("attention", [False, True])
def test_loss_is_that_of_the_logits(attention: bool):
    network = Translator(5, 8, attention=attention)
    tokens, labels = torch.randint(0, 5, (3, 4)), torch.tensor([0, 1, 4])
    expected = -network(tokens).log_softmax(1)[range(3), labels].sum()
    torch.testing.assert_close(network(tokens, labels=labels), expected)


def test_additive_attention_is_its_formula():
    attention, query, states = AdditiveAttention(4), torch.randn(1, 1, 4), torch.randn(1, 3, 4)
    w, u, v = attention.query.weight, attention.key, attention.score.weight[0]
    scores = torch.stack([v @ (w @ query[0, 0] + u(state)).tanh() for state in states[0]])
    torch.testing.assert_close(attention(query, states)[0, 0], scores.softmax(0) @ states[0])


# --- classifiers -----------------------------------------------------------------------------------------------------


def test_constant_answer_is_right_for_half_of_two_classes_however_frequent():
    classes = np.array([0] * 18 + [1] * 6)
    constant, right = classes == 0, classes >= 0
    assert mean_over_classes(constant, classes) == 0.5
    assert interval(resampled(constant, classes)) == (0.5, 0.5)
    assert interval(resampled(right, classes) - resampled(constant, classes)) == (0.5, 0.5)


def test_interval_has_the_width_of_the_binomial():
    classes, right = np.zeros(100, dtype=np.int64), np.arange(100) < 80
    low, high = interval(resampled(right, classes))
    assert high - low == pytest.approx(2 * 1.96 * 0.04, rel=0.15)


def test_words_tell_classes_apart():
    seen = ["money lent", "money kept", "lent money", "river steep", "river wide", "steep river"]
    train, test = counts(seen, ["the money", "a river"], tf_idf=True)
    assert predicted(train, np.array([0, 0, 0, 1, 1, 1]), test).tolist() == [0, 1]


# --- tasks -----------------------------------------------------------------------------------------------------------


def test_repetitions_follow_from_the_text():
    tokens, labels = repeated(8)
    for row, wanted in zip(tokens.tolist(), labels.tolist(), strict=True):
        known = [i for i, label in enumerate(wanted) if label != IGNORED]
        assert known
        for i in known:
            before = max(j for j in range(i) if row[j] == row[i])
            assert wanted[i] == row[before + 1]


def test_shots_hold_the_answer_once():
    tokens, labels = shots(8)
    for row, wanted in zip(tokens.tolist(), labels[:, -1].tolist(), strict=True):
        asked = row.index(row[-1])
        assert asked % 2 == 0
        assert row[asked + 1] == wanted
        assert row.count(wanted) == 1


# --- importance ------------------------------------------------------------------------------------------------------


def test_taking_a_word_away_is_reading_the_rest():
    one = encoder(9, head=c.ClassificationHead(n_labels=2), d_model=16, positions=c.NoPositions())
    ids = [0, 3, 5, 4]
    effects = taken_away(one, Tokens.pad([ids]))
    for i, effect in enumerate(effects, start=1):
        rest = margin(one(Tokens.pad([ids[:i] + ids[i + 1 :]]))) - margin(one(Tokens.pad([ids])))
        torch.testing.assert_close(effect, rest.abs()[0])


def test_gradient_belongs_to_the_words():
    one = encoder(9, head=c.ClassificationHead(n_labels=2, pool="last"), d_model=16, window=1)
    found = by_gradient(one, Tokens.pad([[0, 3, 5, 4]]))
    assert found[:2].tolist() == [0, 0]  # A window of one reads no other position.
    assert found[2] > 0


def test_rank_correlation():
    a = torch.tensor([0.1, 0.9, 0.4])
    assert rank_correlation(a, a.exp()) == pytest.approx(1)
    assert rank_correlation(a, -a) == pytest.approx(-1)


# --- programs --------------------------------------------------------------------------------------------------------


def test_a_program_gives_what_its_description_asks_for():
    described, written = programs.tasks(50, 4)
    signs = {i: sign for sign, i in programs.ASKED.items()}
    loops = 0
    for (name, *asked), row in zip(described.tolist(), written.tolist(), strict=True):
        expected = 2
        for turns, sign, value in zip(asked[::3], asked[1::3], asked[2::3], strict=True):
            loops += turns > 1
            for i in range(turns):
                number = i if programs.WRITTEN[value] == "i" else value
                expected = programs.STEPS[signs[sign]](expected, number)
        text = "".join(programs.WRITTEN[i] for i in row)
        assert programs.run(text, programs.WRITTEN[name], 2) == expected, text
    assert 50 < loops < 150


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "((", "a=3x", "a=x**2", "a=x(3)", "a=007", "a=y", "a=x.real", "a=__import__('os')", "a=[x]", "b=x"),
        *("for i in range(10):a=1", "for i in range(x):a=1", "while x:a=1", "a,b=x,x"),
        "a=x\nfor i in range(9):a=a*9999",
    ],
)
def test_other_texts_are_no_programs(text: str):
    assert programs.run(text, "a", 2) is None


# --- sentences -------------------------------------------------------------------------------------------------------


def test_a_sentence_asks_commands_or_states():
    sit = Word("sit", "VERB", -1, "root", "Mood=Imp|VerbForm=Fin")
    dog, end = Word("dog", "NOUN", 0, "vocative"), [Word(mark, "PUNCT", 0, "punct") for mark in "?!"]
    both = [sit, dog], [sit, dog, end[0]]
    found = {layer_roles.kind(one): layer_roles.without_end(one) for one in both}
    assert found == {"command": ["sit", "dog"], "question": ["sit", "dog"]}
    assert layer_roles.kind([dog]) == "statement"
    assert layer_roles.without_end(end) == ["?"]
    assert layer_roles.before([sit, dog]) == ["", "VERB"]


def test_a_subject_and_its_verb_know_each_other():
    far, dog = [Word("that", "PRON", 1, "det")] * 4, Word("dog", "NOUN", 5, "nsubj")
    assert layer_roles.links([*far, dog, Word("barks", "VERB", -1, "root")]) == [3] * 4 + [4, 2]
    assert layer_roles.links([dog, *far, Word("barks", "VERB", -1, "root")]) == [6, *[3] * 4, 0]
    assert layer_roles.links([dog, *far, Word("tall", "ADJ", -1, "root")]) == [3] * 6


def test_classes_are_drawn_alike():
    drawn = layer_roles.alike(["a"] * 9 + ["b"] * 2, 3, torch.Generator().manual_seed(0))
    assert sorted(i > 8 for i in drawn) == [False] * 3 + [True] * 2


def test_a_french_phrase_turns_its_words_round():
    found = {one.english: one for one in phrase_order.phrases()}
    assert found["the european economic area"].french == "l' espace économique européen"
    assert found["you know the great economic area"].french == "tu connais le grand espace économique"
    assert found["the european economic area"].is_new
    assert found["the european economic area"].order == (2, 1, 0)


# --- tools, pages and states -----------------------------------------------------------------------------------------


def test_a_calculator_is_called_until_the_network_answers():
    text, labels = tools.lesson(1, calls=True)
    script = torch.cat([text, labels[:, -1:]], 1)

    def follows(text: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(script[:, 1 : text.shape[1] + 1], tools.N_SYMBOLS).float()

    factors = [one for one in script[0, : tools.MOST].tolist() if one != tools.NOTHING]
    assert tools.answer(follows, script[0, : tools.MOST], 0) == np.prod(factors)


def test_a_network_that_calls_without_end_has_no_answer():
    def calls(text: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.full_like(text, tools.CALL), tools.N_SYMBOLS).float()

    assert tools.answer(calls, torch.tensor([2, 3, 4, 5]), 0) == -1


def test_pages_look_alike_only_with_the_same_code():
    pictures, _, codes = screenshots.questions(300, counts=False)
    for codes_of_rows, rows in zip(codes.view(-1, 3, 4).unbind(1), pictures[:, 0].chunk(3, 1), strict=True):
        known = {(*code.tolist(), *row.flatten().tolist()) for code, row in zip(codes_of_rows, rows, strict=True)}
        assert len({one[:4] for one in known}) == len({one[4:] for one in known}) == len(known) > 50


def test_rwkv_weighs_what_came_before_by_its_age():
    attention, x = Attention(stack(5, 8)), torch.randn(1, 4, 8)
    mix_time(attention)
    shift, decay, bonus = attention.get_parameter("mixing.0"), attention.get_parameter("mixing.1"), torch.randn(8)
    attention.get_parameter("mixing.2").data = bonus
    before = torch.cat([torch.zeros(1, 8), x[0, :-1]])
    maps = (attention.q, attention.k, attention.v)
    r, k, v = (one(share * x[0] + (1 - share) * before) for one, share in zip(maps, shift, strict=True))
    expected: list[torch.Tensor] = []
    for t in range(4):
        ages = torch.arange(t - 1, -1, -1)[:, None]
        weights = torch.cat([k[:t] - ages * decay.exp(), (k[t] + bonus)[None]]).softmax(0)
        expected.append(r[t].sigmoid() * (weights * v[: t + 1]).sum(0))
    said = attention(x, Layout.of(Tokens(torch.zeros(1, 4, dtype=torch.long))))
    torch.testing.assert_close(said[0], attention.out(torch.stack(expected)))
