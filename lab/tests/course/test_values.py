"""What a page computes is kept, and a change of it is noticed where nothing prints it."""

import math

import pytest
import torch

from clearhead_lab.course import values
from clearhead_lab.course.page import names
from clearhead_lab.course.running import run

PAGE = """# A title

```python
import torch

x = torch.arange(6.0).reshape(2, 3)
few = {"a": x.mean(0), "b": (1, 2.5)}
word = "bank"
```

The rest is {{0.3 = x[1, 0] / 10}}.
"""


def test_every_page_has_accepted_values():
    assert {file.stem for file in values.FOLDER.glob("*.json")} == {*names()}


@pytest.mark.parametrize(
    ("written", "changed", "said"),
    [
        ("reshape(2, 3)", "reshape(2, 3) + 0.01", "x is [6, "),
        ("mean(0)", "mean(-1)", "few is ["),
        ("2.5", "2.6", "few is ["),
        ('"bank"', '"tank"', "word is tank, and was bank"),
        ("word =", "ward =", "ward is bank, and was not there"),
        ("x[1, 0] / 10", "x[1, 1] / 12", "number 0 is 0.333333, and was 0.3"),
    ],
)
def test_a_change_that_nothing_prints_is_noticed(tmp_path, written: str, changed: str, said: str):
    accepted = run("page", PAGE, tmp_path)
    assert accepted.problems == []
    assert run("page", PAGE, tmp_path, accepted.values).problems == []
    found = run("page", PAGE.replace(written, changed, 1), tmp_path, accepted.values).problems
    assert any(said in problem for problem in found), found
    assert "python -m clearhead_lab.course accept page" in found[0]


def test_rounding_is_no_change():
    x = torch.linspace(-3, 3, 100)
    assert values.same(values.summary(x), values.summary(x + 1e-6 * torch.rand(100)))
    assert not values.same(values.summary(x), values.summary(x.flip(0)))
    assert values.same(values.summary(0.0), values.summary(3.6e-7))
    assert not values.same(1, True)
    assert not values.same(values.summary(torch.zeros(3)), values.summary(torch.zeros(4)))


def test_what_no_number_can_be():
    assert values.summary(torch.nn.Linear(2, 2)) is None
    assert values.summary(print) is None
    assert math.isfinite(float(str(values.summary(-math.inf))))


def test_values_of_another_number_of_parts_are_told(tmp_path):
    accepted = run("page", PAGE, tmp_path).values
    assert "expected 3 parts that compute, got 2" in run("page", PAGE, tmp_path, [*accepted, {}]).problems[-1]
