"""The drawing of a page: its steps, its numbers, and labels that do not touch."""

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import torch

from clearhead_lab.course.drawings import WIDTH, cells, patches, vectors
from clearhead_lab.course.running import Ran, run

PAGE = """
```drawing
title = "Three numbers"

[[step]]
say = "The sum is {{7 = sum(x)}}."
words = "(['a', 'b', 'c'], 1)"

[[step]]
say = "A number has a bar."
"bars as they are, up to {{4 = x[-1]}}" = "x"

[[step]]
over = true
say = "Half of it."
"bars halves" = "[one / 2 for one in x]"
```

```python
x = [1, 2, 4]
```
"""
LETTER, SIZE = 6.6, 12
"""How wide a letter of a label is at most on average, and how high."""


def page(text: str, folder: Path, **accepted) -> Ran:
    return run("page", text, folder, **accepted)


def labels(node: ET.Element, step: int, x: float = 0, y: float = 0) -> Iterator[tuple[str, list[float]]]:
    """The labels that are seen at a step, each with its left, top, right and bottom."""
    if not int(node.get("data-from", 0)) <= step < int(node.get("data-until", 99)):
        return
    if moved := re.match(r"translate\((\S+) (\S+)\)", node.get("transform", "")):
        x, y = x + float(moved[1]), y + float(moved[2])
    if node.tag == "text" and node.text:
        width, bottom = LETTER * len(node.text), y + float(node.get("y", 0)) + 3
        left = x + float(node.get("x", 0)) - (0 if node.get("class") == "name" else width / 2)
        yield node.text, [left, bottom - SIZE, left + width, bottom]
    for one in node:
        yield from labels(one, step, x, y)


def clashes(markdown: str) -> list[str]:
    """What is wrong with the labels of a page's drawings: two touch, or one is cut off."""
    wrong: list[str] = []
    for source in re.findall(r'<figure class="drawing">(<svg.*?</svg>)', markdown):
        svg = ET.fromstring(source)
        _, _, width, height = map(float, svg.get("viewBox", "").split())
        for step in range(len(svg)):
            seen = list(labels(svg, step))
            for name, (left, top, right, bottom) in seen:
                if left < 0 or top < 0 or right > width or bottom > height:
                    wrong.append(f"step {step}: {name} is cut off")
            for (one, a), (other, b) in combinations(seen, 2):
                if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]:
                    wrong.append(f"step {step}: {one} touches {other}")
    return wrong


def test_a_drawing_has_a_group_and_a_sentence_for_each_step(tmp_path):
    ran = page(PAGE, tmp_path)
    assert ran.problems == []
    assert re.findall(r'data-from="(\d)"(?: data-until="(\d)")?', ran.markdown) == [("0", ""), ("1", "2"), ("2", "")]
    assert re.findall(r'<button type="button">(.*?)<', ran.markdown)[:2] == ["The sum is 7.", "A number has a bar."]
    assert "as they are, up to 4</text>" in ran.markdown
    assert re.findall(r'class="">([\d.]+)<', ran.markdown) == ["1", "2", "4", "0.50", "1.00", "2.00"]
    assert clashes(ran.markdown) == []


@pytest.mark.parametrize(
    ("written", "changed", "said"),
    [
        ("{{7 =", "{{8 =", "page.md:6: sum(x) is 7, not 8"),
        ("bar.", "bar of 3.", "page.md:10: '3' is a number that no expression computes"),
        ("halves", "3 halves", "page.md:16: '3' is a number that no expression computes"),
        ("bars halves", "bar halves", "page.md:3: ValueError: bar halves: expected words, bars"),
        ('"x"', '"y"', "page.md:3: NameError: name 'y' is not defined"),
        ("one / 2", "one / 3", "page.md:3: 2 bars halves is [3, 0.881917"),
    ],
)
def test_a_wrong_drawing_says_what(tmp_path, written: str, changed: str, said: str):
    found = page(PAGE.replace(written, changed), tmp_path, accepted=page(PAGE, tmp_path).values).problems
    assert any(one.startswith(said) for one in found), found


@pytest.mark.parametrize(("names", "said"), [(["a", "b" * 40, "c"], "touches c"), (["x" * 60], "is cut off")])
def test_labels_that_touch_are_noticed(tmp_path, names: list[str], said: str):
    found = clashes(page(PAGE.replace("['a', 'b', 'c'], 1", f"{names}, 0"), tmp_path).markdown)
    assert any(said in one for one in found), found


def test_vectors_begin_in_one_place_and_are_as_long_as_their_numbers():
    drawn, height = vectors(torch.tensor([[3.0, 4.0], [0.0, -2.5]]), ["one", "two"], 5)
    lines = [[*map(float, xs)] for xs in re.findall(r'd="M(\S+) (\S+)L(\S+) (\S+)"', drawn)]
    assert {(x, y) for x, y, *_ in lines} == {(WIDTH / 2, height / 2)}
    assert [((a - x) ** 2 + (b - y) ** 2) ** 0.5 for x, y, a, b in lines] == pytest.approx([100, 50])
    assert lines[0][3] < height / 2 < lines[1][3]  # What is above zero points up.


def test_vectors_fill_the_picture_and_keep_their_angles():
    drawn, height = vectors(torch.tensor([[4.0, 0.0], [4.0, 1.0]]), ["one", "two"])
    lines = [[*map(float, xs)] for xs in re.findall(r'd="M(\S+) (\S+)L(\S+) (\S+)"', drawn)]
    assert [(a - x, y - b) for x, y, a, b in lines] == [pytest.approx((240, 0)), pytest.approx((240, 60))]
    assert height == pytest.approx(110)


def test_names_of_vectors_that_lie_on_each_other_do_not_touch():
    row, height = vectors(torch.tensor([[1.0, 0.0], [1.0, 0.01], [0.99, 0.0]]), ["money", "fish", "coin"])
    page = f'<figure class="drawing"><svg viewBox="0 0 360 {height}"><g data-from="0">{row}</g></svg>'
    assert clashes(page) == []


def test_a_picture_lies_in_patches_beside_itself():
    row, _ = patches(torch.zeros(16, 16, 3, dtype=torch.uint8), 4)
    assert (row.count("<image"), row.count("<path")) == (17, 5)


def test_columns_of_cells_have_names():
    row, height = cells(torch.eye(2), ["a", "b"], 1, ["c", "d"])
    assert re.findall(r">(\w)<", row) == ["c", "d", "a", "b"]
    assert height == cells(torch.eye(2), ["a", "b"], 1)[1] + 18
