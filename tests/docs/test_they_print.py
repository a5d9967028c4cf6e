"""What guides show that a command prints is what it prints."""

import csv
import io
import re
import shlex
import tomllib
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest

from clearhead.cli import main
from clearhead_lab.course.commands import BEGINS
from tests.conftest import ROOT
from tests.docs.blocks import GUIDES, blocks
from tests.docs.outputs import NUMBER, difference
from tests.docs.running import Folder

TABLE: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("printed.toml").read_text(encoding="utf-8"))
ELSEWHERE = {(page, begins) for page, ones in TABLE.pop("not_compared").items() for begins in ones}
INPUT = re.compile(rf"(?!\$ )(?:{BEGINS.pattern}|pip |\[project)")
SHOWN = {
    (path.stem, block.text): re.sub(r"^\$ .*\n|^\.\.\.\n", "", block.text, flags=re.MULTILINE)
    for path in GUIDES
    for block in blocks(path.read_text(encoding="utf-8"))
    if block.language in ("", "text") and not INPUT.match(block.text)
}
"""What a page shows that something prints, by page and block."""
TICKETS = {
    "delivery": (20, "My order did not arrive on the day you sai"),
    "returns": (22, "I would like to send the red coat back to "),
    "billing": (18, "You charged my card twice for one purchase"),
}
WRONG = {"attention": "mask-after-softmax", "split_heads": "axis"}
"""Functions of a learner, and the mistake in each."""


def tickets(folder: Path) -> None:
    """Messages to teams: the first to delivery, and most to returns."""
    rows = [(team, text) for team, (n, text) in TICKETS.items() for _ in range(n)]
    for name in ("tickets_train", "tickets_dev"):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(["id", "received", "message", "team"])
            for i, (team, text) in enumerate(rows):
                csv.writer(file).writerow([1000 + i, f"2026-01-{i % 28 + 1:02d}", f"{text}{i % 10}", team])


def written(folder: Path) -> None:
    """The functions of a learner who has made mistakes and has not come to the padding."""
    source = ROOT / "lab" / "tests" / "write"
    text = (source / "solution.py").read_text(encoding="utf-8")
    ways = tomllib.loads((source / "wrong_ways.toml").read_text(encoding="utf-8"))
    for function, mistake in WRONG.items():
        old, new = next((old, new) for old, new, kind in ways[function] if kind == mistake)
        head, body = text.split(f"def {function}(", 1)
        text = f"{head}def {function}({body.replace(old, new, 1)}"
    text = text.replace("return (ids != pad)[:, None, None, :]", "raise NotImplementedError")
    text = text.replace("return (x - mean)", "return 1.05 * (x - mean)")
    (folder / "mine").mkdir()
    (folder / "mine" / "transformer.py").write_text(text, encoding="utf-8")


def printed(line: str) -> str:
    """What a command prints. One that judges may end with an error."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(out), suppress(SystemExit):
        main(shlex.split(line))
    return out.getvalue()


@pytest.mark.parametrize(
    ("page", "begins"), [pytest.param(page, begins, id=f"{page}: {begins}") for page in TABLE for begins in TABLE[page]]
)
def test_it_prints_what_it_shows(page: str, begins: str, tmp_path, models, runs, monkeypatch, request):
    one = TABLE[page][begins]
    monkeypatch.chdir(tmp_path)
    folder = Folder(tmp_path, models, runs, f"{page}.md")
    for name, shared in one.get("shared", {}).items():
        (tmp_path / name).symlink_to(request.getfixturevalue("shared_data") / shared)
    for name, text in one.get("files", {}).items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    if page in MADE:
        MADE[page](tmp_path)
    if "files" not in one:
        folder.supply(" ".join(one["commands"]))
    *_, said = [printed(line) for line in one["commands"]]
    shown = next(text for (stem, block), text in SHOWN.items() if stem == page and block.strip().startswith(begins))
    shown = NUMBER.sub("…", shown) if "words" in one else shown
    assert (line := difference(f"…\n{shown}…\n", said)) is None, f"expected {line}\nin\n{said}"


MADE = {"classification": tickets, "write": written}
"""What a page's commands read."""


def test_every_block_that_shows_an_output_is_compared():
    known = [*ELSEWHERE, *((page, begins) for page, ones in TABLE.items() for begins in ones)]
    assert [one for one in SHOWN if not any(one[0] == page and one[1].strip().startswith(b) for page, b in known)] == []
    blocks_of = [one for one in known if not any(p == one[0] and b.strip().startswith(one[1]) for p, b in SHOWN)]
    assert blocks_of == []
