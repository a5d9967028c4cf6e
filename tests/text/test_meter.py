"""The allowance of a stranger's program: what things weigh, and that it ends."""

import pytest

from clearhead.text.meter import MEMBER, STEP, Exhausted, allowance, meter, pay, pay_operator


def test_weight_counts_what_is_shared_as_often_as_it_occurs() -> None:
    with allowance(10**6):
        word = "abc"
        assert meter().weight(word) == 3
        assert meter().weight([word, word]) == 2 * (MEMBER + 3)
        assert meter().weight({"k": [word]}) == (MEMBER + 1) + (MEMBER + MEMBER + 3)
        assert meter().weight({"k": word}.values()) == MEMBER + 3


def test_a_value_of_exponential_weight_is_refused_at_once() -> None:
    value: list[object] = []
    for _ in range(200):
        value = [value, value]
    with allowance(10**6), pytest.raises(Exhausted, match="larger value"):
        meter().admit(value)


def test_an_allowance_is_spent_to_the_last_and_then_restored() -> None:
    with allowance(2 * STEP):
        pay("upper", [], deep=True)
        with allowance(STEP):
            pay("upper", [], deep=True)
        pay("upper", [], deep=True)
        with pytest.raises(Exhausted):
            pay("upper", [], deep=True)


@pytest.mark.parametrize(
    ("operator", "left", "right"), [("*", "a", 10**9), ("*", 10**9, [1]), ("**", 9, 10**9), ("%", "%99999d", 1)]
)
def test_operators_are_paid_before_they_are_carried_out(operator: str, left: object, right: object) -> None:
    with allowance(10**6), pytest.raises(Exhausted):
        pay_operator(operator, left, right)
