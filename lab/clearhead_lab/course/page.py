"""A page as it is written: prose, and fenced blocks by their language."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(?P<language>[\w-]+)[ \t]*\n(?P<body>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
CAPTION = re.compile(r'^(?:(?:title|move|say) = "(.*)"|"\w+ (.*)" = .*)$', re.MULTILINE)
FIGURES = ("explorer", "drawing")
HERE = Path(__file__).resolve().parent
PAGES = HERE / "pages"
GUIDES = next(
    folder for folder in (HERE / "guides", HERE.parents[2] / "docs") if folder.is_dir() or folder.name == "docs"
)
"""The guides: a wheel of the lab carries them (lab/hatch_build.py), a checkout has them in docs/."""


@dataclass(frozen=True)
class Part:
    """Prose (without a language) or the body of a fenced block, and where it stands in the file."""

    text: str
    start: int
    line: int
    language: str = ""


def parts(text: str) -> Iterator[Part]:
    """The parts of a page in order."""
    at = 0

    def prose(until: int) -> Iterator[Part]:
        if text[at:until].strip():
            yield Part(text[at:until], at, text.count("\n", 0, at) + 1)

    for found in FENCE.finditer(text):
        yield from prose(found.start())
        start = found.start("body")
        yield Part(found["body"], start, text.count("\n", 0, start) + 1, found["language"])
        at = found.end()
    yield from prose(len(text))


def captions(part: Part) -> Iterator[Part]:
    """The texts of a figure or a drawing."""
    for found in CAPTION.finditer(part.text):
        start = found.start(found.lastindex or 0)
        yield Part(found[found.lastindex or 0], part.start + start, part.line + part.text.count("\n", 0, start))


def names() -> list[str]:
    """The pages of the course, without their ending."""
    return sorted(file.stem for file in PAGES.glob("*.md"))
