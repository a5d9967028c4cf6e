"""The documents, their blocks, and the command lines in their blocks and sentences."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clearhead_lab.course.commands import SHELLS, lines
from tests.conftest import ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
CHAPTERS = sorted((ROOT / "lab" / "clearhead_lab" / "course" / "pages").glob("*.md"))
HISTORY = ROOT / "docs" / "log"
"""What was said and done once: it is not mended when the commands change."""
TUTORIALS = [path for path in DOCUMENTS if path.parent.name == "tutorials" and path.name != "index.md"]
"""Pages that run as they are, and print what they show."""
ELSEWHERE = {"CONTRIBUTING.md", *(path.name for path in TUTORIALS)}
GUIDES = [path for path in DOCUMENTS if path.parent != HISTORY and path.name not in ELSEWHERE]
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^(?P=indent)```[ \t]*$", re.MULTILINE | re.DOTALL
)
SPAN = re.compile(r"`((?:\.venv/bin/)?(?:clearhead|python) [^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """The body of a fenced block, its language, and the line where it begins."""

    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """A command line. One in a sentence may leave out what the command needs."""

    text: str
    line: int
    in_block: bool


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(text: str) -> Iterator[Block]:
    for found in FENCE.finditer(text):
        yield Block(found["language"], found["body"], text.count("\n", 0, found.start("body")) + 1)


def alternatives(line: str) -> list[str]:
    """The lines that `--to hf|onnx` stands for."""
    found = re.search(r"(?<= )\w+(?:\|\w+)+", line)
    return [line] if found is None else [line.replace(found[0], one, 1) for one in found[0].split("|")]


def commands(text: str) -> list[Command]:
    """Every command line of a document, in its order."""
    found = [
        Command(line, block.line + number, in_block=True)
        for block in blocks(text)
        if block.language in SHELLS
        for number, line in lines(block.text)
    ]
    prose = FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    for span in SPAN.finditer(prose):
        line = prose.count("\n", 0, span.start()) + 1
        found += [Command(one, line, in_block=False) for one in alternatives(span[1].replace("\\|", "|"))]
    return sorted(found, key=lambda one: one.line)
