"""Every command line in a document or chapter is one that clearhead takes: command, options, fields of a recipe."""

import re
from pathlib import Path

import pytest

from clearhead_lab.course.commands import complaint
from tests.docs.blocks import CHAPTERS, DOCUMENTS, HISTORY, commands, name

PAGES = [path for path in (*DOCUMENTS, *CHAPTERS) if path.parent != HISTORY]


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_every_command_line_is_one(path: Path):
    found = [
        f"{name(path)}:{one.line}: {one.text}: {said}"
        for one in commands(path.read_text(encoding="utf-8"))
        if (said := complaint(one.text, whole=one.in_block))
    ]
    assert found == []


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_no_page_installs_what_is_not_published(path: Path):
    """A clone or a wheel is installed by its path; extras of what is installed, by name."""
    assert re.findall(r"pip install[^`\n]* clearhead(?:-lab)?(?![\w\[-])", path.read_text(encoding="utf-8")) == []


def test_the_commands_are_found():
    found = {one.text.split()[1] for path in PAGES for one in commands(path.read_text(encoding="utf-8"))}
    assert {"train", "resume", "evaluate", "compare", "explore", "export", "lab", "plan", "serve", "-m"} <= found


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("clearhead train lm --text book.txt --training.clip 0.5", None),
        ("clearhead train lm --txet book.txt", "no such option"),
        ("clearhead train lm --training.clop 0.5", "no such field; did you mean --training.clip?"),
        ("clearhead trian lm", "trian"),
        ("clearhead evaluate RUN --int9", "--int9"),
        ("clearhead evaluate", "RUN|MODEL|requires an argument"),
        ("clearhead lab run order-blindness --seeds many", "many"),
        ("python -m clearhead_lab.course check attention", None),
        ("python -m clearhead_lab.course chek attention", "chek"),
        ("python -m benchmarks.course_changes --n 500", None),
        ("python +m clearhead_lab.course check attention", "expected python -m MODULE"),
        ("python -m benchmarks.curse_changes", "no module benchmarks.curse_changes"),
        ("torchrun --nproc-per-node 8 -m clearhead train lm --txet a.txt", "no such option"),
        ("cd x && clearhead plan gpt2 --gpu h300 > plan.txt", "h300"),
    ],
)
def test_a_wrong_line_is_told(line: str, said: str | None):
    told = complaint(line)
    assert told is None if said is None else (told is not None and any(one in told for one in said.split("|")))


def test_a_sentence_may_name_a_command_alone():
    assert complaint("clearhead classify --labels", whole=False) is None
    assert complaint("clearhead classify --lables", whole=False) is not None
