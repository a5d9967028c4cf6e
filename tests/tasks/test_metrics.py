"""Scores against their definitions, worked by hand."""

import math

import pytest

from clearhead.errors import UserError
from clearhead.tasks import metrics as m

CAT = "the cat sat on the mat"


def test_bleu_of_a_worked_example() -> None:
    # 5 of 6 words, 3 of 5 pairs, 2 of 4 triples, 1 of 3 quadruples; equal lengths, so no brevity penalty.
    score = m.bleu(["the cat sat on a mat"], [[CAT]])
    assert score.value == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)
    assert score.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_bleu_settings_stand_in_the_signature() -> None:
    score = m.bleu(["The Cat sat on the mat"], [[CAT]], tokenize="none", lowercase=True)
    assert score.value == pytest.approx(100.0)
    assert "case:lc" in score.signature
    assert "tok:none" in score.signature


def test_bleu_takes_the_best_of_several_references_in_any_number() -> None:
    outputs = [CAT, "a dog ran in the park"]
    assert m.bleu(outputs, [["no match at all", CAT], ["a dog ran in the park"]]).value == pytest.approx(100.0)


def test_chrf_of_equal_and_of_disjoint_texts() -> None:
    assert m.chrf([CAT], [[CAT]]).value == pytest.approx(100.0)
    assert m.chrf(["xyz"], [[CAT]]).value == 0.0
    plus = m.chrf([CAT], [[CAT]], word_order=2)
    assert plus.name == "chrf++"
    assert "nc:6|nw:2" in plus.signature


def test_exact_match() -> None:
    assert m.exact_match(["a", " b ", "c", "d"], [["a"], ["b"], ["x", "c"], ["D"]]).value == 0.75


def test_perplexity_of_a_uniform_guess_is_the_number_of_choices() -> None:
    assert m.perplexity(10 * math.log(65), 10).value == pytest.approx(65.0)
    assert m.perplexity(1e9, 1).value == math.inf


def test_bits_per_byte_of_a_uniform_guess_over_bytes_is_eight() -> None:
    assert m.bits_per_byte(10 * math.log(256), 10).value == pytest.approx(8.0)


def test_score_prints_on_one_line() -> None:
    assert str(m.Score("bleu", 12.345, "nrefs:1")) == "bleu = 12.35 (nrefs:1)"
    assert str(m.Score("perplexity", 3.0)) == "perplexity = 3.00"


@pytest.mark.parametrize("metric", [m.bleu, m.chrf, m.exact_match])
def test_mistakes_are_told(metric) -> None:
    with pytest.raises(UserError, match="got 2 for 1"):
        metric(["a"], [["a"], ["b"]])
    with pytest.raises(UserError, match="at least one output"):
        metric([], [])
    with pytest.raises(UserError, match="expected a list of texts, got 'a'"):
        metric(["a"], ["a"])


def test_nothing_to_measure() -> None:
    with pytest.raises(UserError, match="at least one token"):
        m.perplexity(0.0, 0)
    with pytest.raises(UserError, match="at least one byte"):
        m.bits_per_byte(0.0, 0)
