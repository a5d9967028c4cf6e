"""What is wrong with a page before it runs."""

import pytest

from clearhead_lab.course.page import parts
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
