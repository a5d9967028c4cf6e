"""What is wrong with a page before it runs."""

import re

import pytest

from clearhead_lab.course.around import CHAPTERS
from clearhead_lab.course.page import parts
from clearhead_lab.course.site import source
from clearhead_lab.course.written import complaints


def said(text: str) -> list[str]:
    return [f"{line}: {message}" for line, message in complaints(list(parts(text)))]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("GPT-2, of 2019, reads UTF-8.\n", None),
        ("GPT-3 is larger.\n", "1: '-3' is a number that no expression computes"),
        ("The paper of 2018.\n", "1: '2018' is a number that no expression computes"),
        ("Look at `w[1]`.\n\n```python\nw[1]\n```\n", None),
        ("Look at `w[2]`.\n\n```python\nw[1]\n```\n", "1: `w[2]` stands in no block"),
        ("```python\nx = 1  # the first\n```\n", None),
        ("```python\nx = 1  # place 1\n```\n", "2: '# place 1' has a number"),
        ("```python\nx.mean(0) + x.softmax(-1) + x.sum(dim=-1) + x.flatten(1)\n```\n", None),
        ("```python\n\nx.mean(1)\n```\n", "3: axis 1 of mean: write 0 or -1"),
        ("```python\ny = softmax(x, dim=0)\n```\n", "2: axis 0 of softmax: write -1"),
        ("```python\ny = softmax(x, dim=-2)\n```\n", "2: axis -2 of softmax: write -1"),
        ("```bash\nclearhead train lm --text book.txt\n```\n", None),
        ("```bash\n\nclearhead train lm --txet book.txt\n```\n", "3: clearhead train lm --txet book.txt"),
        ("Run `clearhead explore gpt2`.\n", None),
        ("Run `clearhead exploer gpt2`.\n", "1: `clearhead exploer gpt2`"),
        ('```explorer\ntitle = "A head"\nmove = "Move it."\n```\n', None),
        ('```explorer\ntitle = "Head 2"\nmove = "Move it."\n```\n', "2: '2' is a number"),
        ('```explorer\ntitle = "A head"\nmove = "Move head 2."\n```\n', "3: '2' is a number"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, wrong: str | None):
    found = said(text)
    assert found == [] if wrong is None else (len(found) == 1 and found[0].startswith(wrong)), found


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_goes_from_its_picture_and_a_question_to_its_cost_and_its_limits(name: str):
    text = source(name)
    headings = re.compile("^## .*", re.MULTILINE)
    marks = [
        mark for part in parts(text) for mark in ((part.language and [part.language]) or headings.findall(part.text))
    ]
    order = [
        "drawing",
        "## What do you expect?",
        "explorer",
        "formula",
        "python",
        "## What it costs",
        "## Where it fails",
    ]
    order = [one for one in order if one in marks or one != "formula"]
    assert [one for one in dict.fromkeys(marks) if one in order] == order
    assert "?" in text[text.index(order[1]) + len(order[1]) : text.index("```explorer")]
