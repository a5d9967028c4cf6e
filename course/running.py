"""Runs a page: its blocks, formulas, figures and numbers, and everything that is not as it is written."""

import contextlib
import io
import os
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course import figures as drawn
from course import formulas, numbers
from course.figures import Figure
from course.page import Part, parts


@dataclass
class Ran:
    """A page that was run: its Markdown for the site, its figures, and what is wrong with it."""

    name: str
    markdown: str = ""
    figures: list[Figure] = field(default_factory=list[Figure])
    problems: list[str] = field(default_factory=list[str])
    fixes: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])
    """Start, end and the right text of outputs and numbers of the source that are wrong."""


class _Runner:
    """The state of one page while it runs."""

    def __init__(self, name: str, text: str, models: Path) -> None:
        self.ran, self.text, self.models = Ran(name), text, models
        self.space: dict[str, Any] = {"__name__": f"course.{name}"}
        self.said: str | None = None  # What the last block printed; None if its output has been compared.
        self.last = 0  # Its line.
        self.shown = ""

    def wrong(self, line: int, message: str, fix: tuple[int, int, str] | None = None) -> None:
        self.ran.problems.append(f"{self.ran.name}.md:{line}: {message}")
        if fix is not None:
            self.ran.fixes.append(fix)

    def run(self) -> Ran:
        everything = list(parts(self.text))
        self.shown = "\n".join(part.text for part in everything if part.language)
        for part in everything:
            if self.said and part.language != "output":
                self.wrong(self.last, "the block prints, but has no output block")
                self.said = None
            handle = {
                "": self.prose, "python": self.python, "output": self.output, "formula": self.formula,
                "explorer": self.explorer,
            }.get(part.language, self.other)  # fmt: skip
            try:
                self.ran.markdown += handle(part)
            except Exception as error:
                self.wrong(part.line, f"{type(error).__name__}: {error}")
        if self.said:
            self.wrong(self.last, "the block prints, but has no output block")
        return self.ran

    # --- blocks ---

    def python(self, part: Part) -> str:
        code = compile("\n" * (part.line - 1) + part.text, f"{self.ran.name}.md", "exec")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            try:
                exec(code, self.space)
            except Exception as error:
                line = traceback.extract_tb(error.__traceback__)[1].lineno
                self.wrong(line or part.line, f"{type(error).__name__}: {error}")
        self.said, self.last = out.getvalue() or None, part.line
        return f"```python\n{part.text}```\n"

    def output(self, part: Part) -> str:
        said, self.said = self.said, None
        if part.text != (said or ""):
            first = next(
                (a for a, b in zip(part.text.splitlines(), (said or "").splitlines(), strict=False) if a != b), ""
            )
            fix = (part.start, part.start + len(part.text), said or "")
            self.wrong(
                part.line, f"the block before prints something else; the first line that differs: {first!r}", fix
            )
        return f"``` {{ .text .output }}\n{part.text}```\n"

    def formula(self, part: Part) -> str:
        lines = [line for line in part.text.splitlines() if line.strip()]
        for i, line in enumerate(lines):
            if not formulas.holds(line, self.space):
                self.wrong(part.line + i, f"the formula does not hold: {line}")
        return "\n".join(['<div class="formula">', *map(formulas.mathml, lines), "</div>\n"])

    def explorer(self, part: Part) -> str:
        figure = drawn.figure_of(part.text)
        value = drawn.number(figure, self.models)
        right = numbers.like(figure.value, value)
        if right != figure.value:
            start = part.start + part.text.index(f'"{figure.value}"', part.text.index("value")) + 1
            self.wrong(
                part.line, f"{figure.at} is {right}, not {figure.value}", (start, start + len(figure.value), right)
            )
        self.ran.figures.append(figure)
        said = Part(figure.move, part.start + part.text.index(figure.move), part.line)
        return "\n" + drawn.html(figure, self.prose(said)) + "\n"

    def other(self, part: Part) -> str:
        return f"```{part.language}\n{part.text}```\n"

    # --- prose ---

    def prose(self, part: Part) -> str:
        found: dict[str, str] = {}
        for match in numbers.INLINE.finditer(part.text):
            line = part.line + part.text.count("\n", 0, match.start())
            try:
                found[match[0]] = numbers.checked(match["shown"], match["code"], self.space)
            except numbers.Mismatch as error:
                start = part.start + match.start("shown")
                self.wrong(
                    line,
                    f"{match['code']} is {error}, not {match['shown']}",
                    (start, start + len(match["shown"]), str(error)),
                )
                found[match[0]] = str(error)
            except Exception as error:
                self.wrong(line, f"{match['code']}: {type(error).__name__}: {error}")
                found[match[0]] = match["shown"]
        for at, number in numbers.stray(part.text):
            line = part.line + part.text.count("\n", 0, at)
            self.wrong(line, f"{number!r} is a number that no expression computes; write {{{{{number} = ...}}}}")
        for span in numbers.spans(part.text):
            if span not in self.shown:
                line = part.line + part.text.count("\n", 0, part.text.index(span))
                self.wrong(line, f"`{span}` stands in no block of the page")
        return numbers.render(part.text, found)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """In this folder, with warnings as errors."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        os.chdir(before)


def run(name: str, text: str, models: Path) -> Ran:
    """Runs a page in the folder of the models. Problems name the file and the line; none means that all is right."""
    with _inside(models):
        return _Runner(name, text, models).run()


def fixed(text: str, ran: Ran) -> str:
    """The source with the right outputs and numbers."""
    for start, end, right in sorted(ran.fixes, reverse=True):
        text = text[:start] + right + text[end:]
    return text
