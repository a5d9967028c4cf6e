"""A page that is not as it is written says where and what."""

from pathlib import Path

import pytest

from clearhead_lab.course.running import fixed, run

PAGE = """# A title

```python
x = [1, 2, 4]
total = sum(x)
print("sum", total)
```

```output
sum 7
```

```formula
total = x[0] + x[1] + x[2]
```

The sum is {{7 = total}}, and the last is {{57.1% = x[2] / total}} of it, `x = [1, 2, 4]`. GPT-2 is of 2019.
"""


def problems(text: str, folder: Path) -> list[str]:
    return run("page", text, folder).problems


def test_a_right_page_becomes_markdown(tmp_path):
    ran = run("page", PAGE, tmp_path)
    assert ran.problems == []
    assert "The sum is 7, and the last is 57.1% of it" in ran.markdown
    assert "<msub><mi>x</mi><mrow><mn>2</mn></mrow></msub>" in ran.markdown
    assert "``` { .text .output .no-copy }\nsum 7\n```" in ran.markdown


@pytest.mark.parametrize(
    ("written", "changed", "line", "said"),
    [
        ("sum 7\n", "sum 8\n", 10, "prints something else"),
        ("x[2]\n", "x[1]\n", 14, "the formula does not hold: total = x[0] + x[1] + x[1]"),
        ("total = x[0] + x[1]", "total = x[0] - x[1]", 14, "the formula does not hold"),
        ("total = x[0]", "total = x[5]", 14, "IndexError"),
        ("{{7 =", "{{9 =", 17, "total is 7, not 9"),
        ("57.1%", "57.2%", 17, "x[2] / total is 57.1%, not 57.2%"),
        ("x[2] / total", "x[1] / total", 17, "x[1] / total is 28.6%, not 57.1%"),
        ("{{7 = total}}", "7", 17, "'7' is a number that no expression computes"),
        ("`x = [1, 2, 4]`", "`x = [1, 3, 4]`", 17, "`x = [1, 3, 4]` stands in no block"),
        ("print(", "prin(", 6, "NameError"),
        ("```output\nsum 7\n```\n", "", 4, "prints, but has no output block"),
        ('print("sum", total)\n', "", 9, "prints something else"),
    ],
)
def test_a_wrong_page_says_what(tmp_path, written: str, changed: str, line: int, said: str):
    found = problems(PAGE.replace(written, changed, 1), tmp_path)
    assert any(said in problem for problem in found), found
    assert found[0].startswith(f"page.md:{line}: "), found


def test_a_formula_may_stand_before_its_code(tmp_path):
    early = "```formula\ntotal = x + 1\n```\n\n```python\nx = 1\n```\n\n```python\ntotal = {}\n```\n"
    assert problems(early.format(2), tmp_path) == []
    assert problems(early.format(3), tmp_path) == ["page.md:2: the formula does not hold: total = x + 1"]
    assert problems(early.format("x").replace("total = x\n", ""), tmp_path) == [
        "page.md:2: no block defines every name of the formula total = x + 1"
    ]


def test_a_warning_is_an_error(tmp_path):
    text = "```python\nimport warnings\nwarnings.warn('old')\n```\n"
    assert problems(text, tmp_path) == ["page.md:3: UserWarning: old"]


def test_what_is_printed_is_accepted(tmp_path):
    wrong = PAGE.replace("sum 7", "").replace("57.1%", "11.1%")
    assert fixed(wrong, run("page", wrong, tmp_path)) == PAGE
