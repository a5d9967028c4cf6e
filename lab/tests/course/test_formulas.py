"""Equations in Python's notation: evaluated, and set as MathML."""

import pytest
import torch

from clearhead_lab.course.formulas import holds, mathml

A, B = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0.5, 0.0], [1.0, 2.0]])
SPACE = {"A": A, "B": B, "C": A @ B.T / 2**0.5, "d_k": 2, "w": (A @ B.T / 2**0.5).softmax(-1), "n": 2}


@pytest.mark.parametrize(
    ("line", "truth"),
    [
        ("C = A @ B.T / sqrt(d_k)", True),
        ("C = A @ B / sqrt(d_k)", False),
        ("C = A @ B.T / d_k", False),
        ("w = softmax(A @ B.T / sqrt(d_k))", True),
        ("w[0] = softmax(C[1])", False),
        ("C[0, 1] = sum(A[0, i] * B[1, i] for i in range(n)) / sqrt(d_k)", True),
        ("C = A", False),
        ("C = A[0]", False),
    ],
)
def test_an_equation_holds_or_not(line: str, truth: bool):
    assert holds(line, dict(SPACE)) is truth


def test_it_is_set_as_a_person_would():
    set_ = mathml("w = softmax(A @ B.T / sqrt(d_k))")
    assert (
        '<mfrac><mrow><mrow><mi>A</mi><mspace width="0.25em"/><msup><mi>B</mi><mi>T</mi></msup></mrow></mrow>' in set_
    )
    assert "<msqrt><msub><mi>d</mi><mi>k</mi></msub></msqrt>" in set_
    assert mathml("x = (a + b) * c").count("<mo>(</mo>") == 1
    assert "<munder><mo>∑</mo><mrow><mi>i</mi></mrow></munder>" in mathml("x = sum(a[i] for i in range(3))")


def test_what_cannot_be_set_is_refused():
    with pytest.raises(SyntaxError, match="lambda"):
        mathml("x = (lambda: 1)")
