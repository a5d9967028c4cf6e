"""Runs a page: its blocks, formulas, figures and numbers, and everything that is not as it is written."""

import contextlib
import io
import os
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clearhead_lab.course import claims, drawings, formulas, numbers, values, written
from clearhead_lab.course import figures as drawn
from clearhead_lab.course.claims import Claim
from clearhead_lab.course.figures import Figure
from clearhead_lab.course.page import FIGURES, Part, parts
from clearhead_lab.course.values import Values


@dataclass
class Ran:
    """A page that was run: its Markdown for the site, its figures, and what is wrong with it."""

    name: str
    markdown: str = ""
    figures: list[Figure] = field(default_factory=list[Figure])
    problems: list[str] = field(default_factory=list[str])
    fixes: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])
    """Start, end and the right text of outputs and numbers of the source that are wrong."""
    values: list[Values] = field(default_factory=list[Values])
    """What each part computes."""


class Runner:
    """The state of one page while it runs.

    `accepted` are the values that its parts computed when they were last accepted; None compares none.
    """

    def __init__(self, name: str, text: str, models: Path, accepted: Sequence[Values] | None = None) -> None:
        self.ran, self.models, self.accepted = Ran(name), models, accepted
        self.parts = list(parts(text))
        self.space: dict[str, Any] = {"__name__": f"course.{name}"}
        self.said: str | None = None  # What the last block printed; None if its output has been compared.
        self.last = 0  # Its line.
        self.known: Values = {}  # The page's variables after the last block.
        self.waiting: list[Part] = []  # Formulas that stand before the code of their names.
        self.claims: list[Claim] = []  # What the sentences claim.
        self.measured = 0  # Claims that have been measured.

    def wrong(self, line: int, message: str, fix: tuple[int, int, str] | None = None) -> None:
        self.ran.problems.append(f"{self.ran.name}.md:{line}: {message}")
        if fix is not None:
            self.ran.fixes.append(fix)

    def run(self) -> Ran:
        """Runs the whole page."""
        self.read()
        for part in self.parts:
            self.step(part)
        self.end()
        return self.ran

    def read(self) -> None:
        """Finds what is wrong with the page as it is written."""
        for line, message in written.complaints(self.parts):
            self.wrong(line, message)
        with contextlib.suppress(ValueError):  # The complaints have named it.
            self.claims = [claims.claim_of(part.text) for part in self.parts if part.language == "claim"]

    def step(self, part: Part) -> None:
        """Runs the next part."""
        if part.language != "output":
            self.compared()
        handle = {
            "": self.prose, "python": self.python, "output": self.output, "formula": self.formula,
            "explorer": self.place, "claim": self.claim, "lab": self.lab, "excused": self.excused,
            "drawing": self.place,
        }.get(part.language, self.other)  # fmt: skip
        try:
            self.ran.markdown += handle(part)
        except Exception as error:
            self.wrong(part.line, f"{type(error).__name__}: {error}")

    def end(self) -> None:
        """Says what is left to say after the last part."""
        self.compared()
        for part in self.parts:
            if part.language in FIGURES:
                self.fill(part)
        for part in self.waiting:
            self.wrong(part.line, f"no block defines every name of the formula {part.text.strip()}")
        if self.accepted is not None and len(self.accepted) != len(self.ran.values):
            self.wrong(
                1, f"expected {len(self.accepted)} parts that compute, got {len(self.ran.values)}; {self.remedy}"
            )

    def compared(self) -> None:
        """Complains of what the last block printed, if no output block follows it."""
        if self.said:
            self.wrong(self.last, "the block prints, but has no output block")
        self.said = None

    def computed(self, part: Part, found: Values) -> None:
        """Keeps the values of a part, and complains of those that are not what they were."""
        at = len(self.ran.values)
        self.ran.values.append(found)
        if self.accepted is not None and at < len(self.accepted):
            for difference in values.differences(found, self.accepted[at]):
                self.wrong(part.line, f"{difference}; {self.remedy}")

    @property
    def remedy(self) -> str:
        return f"if this is right, python -m clearhead_lab.course accept {self.ran.name}"

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
        before, self.known = self.known, values.variables(self.space)
        self.computed(
            part, {name: value for name, value in self.known.items() if not values.same(before.get(name), value)}
        )
        self.equate()
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
        return f"``` {{ .text .output .no-copy }}\n{part.text}```\n"

    def formula(self, part: Part) -> str:
        self.waiting.append(part)
        self.equate()
        lines = filter(str.strip, part.text.splitlines())
        return "\n".join(['<div class="formula">', *map(formulas.mathml, lines), "</div>\n"])

    def equate(self) -> None:
        """Evaluates the formulas whose names are all there by now."""
        waiting, self.waiting = self.waiting, list[Part]()
        for part in waiting:
            sides: Values = {}
            for i, line in enumerate(filter(str.strip, part.text.splitlines())):
                try:
                    left, right = formulas.sides(line, self.space)
                except NameError:
                    self.waiting.append(part)
                    break
                except Exception as error:
                    self.wrong(part.line + i, f"{type(error).__name__}: {error}")
                    continue
                sides[f"side {i}"] = values.summary(left)
                if not formulas.equal(left, right):
                    self.wrong(part.line + i, f"the formula does not hold: {line}")
            else:
                self.computed(part, sides)

    def place(self, part: Part) -> str:
        return f"<{part.language} {part.line}>"

    def fill(self, part: Part) -> None:
        """Puts a figure into its place, with the numbers that the whole page has found."""
        try:
            shown = self.explorer(part) if part.language == "explorer" else self.draw(part)
        except Exception as error:
            self.wrong(part.line, f"{type(error).__name__}: {error}")
            return
        self.ran.markdown = self.ran.markdown.replace(self.place(part), shown)

    def draw(self, part: Part) -> str:
        figure, shown = drawings.draw(self.prose(part), self.space)
        self.computed(part, shown)
        return figure

    def explorer(self, part: Part) -> str:
        figure = drawn.figure_of(part.text)
        value = drawn.number(figure, self.models)
        right = numbers.like(figure.value, value)
        if right != figure.value:
            start = part.start + part.text.index(f'"{figure.value}"', part.text.index("value")) + 1
            self.wrong(
                part.line, f"{figure.at} is {right}, not {figure.value}", (start, start + len(figure.value), right)
            )
        self.computed(part, {figure.title: values.summary(value)})
        self.ran.figures.append(figure)
        said = Part(figure.move, part.start + part.text.index(figure.move), part.line)
        return "\n" + drawn.html(figure, self.prose(said)) + "\n"

    def claim(self, part: Part) -> str:
        one = claims.claim_of(part.text)
        (holds, true), (fooled, false) = one.run(self.space), one.run(self.space, false=True)
        if not holds:
            self.wrong(part.line, f"the claim does not hold: {one.check}, with {claims.told(true)}")
        if fooled:
            self.wrong(part.line, f"the claim holds where it is false: {one.check}, with {claims.told(false)}")
        said = [" ".join(text.split()) for _, text in claims.sentences(self.parts) if one.is_said(text)]
        self.computed(part, values.variables({"sentences": said, "check": one.check}))
        self.measured += 1
        others = claims.beside(self.claims[self.measured - 1], self.parts, self.claims)
        return claims.html(self.measured - 1, one, said, true, false, others)

    def excused(self, _: Part) -> str:
        return ""

    def lab(self, part: Part) -> str:
        return claims.found(part)

    def other(self, part: Part) -> str:
        return f"```{part.language}\n{part.text}```\n"

    # --- prose ---

    def prose(self, part: Part) -> str:
        found: dict[str, str] = {}
        computed: Values = {}
        for number, match in enumerate(numbers.INLINE.finditer(part.text)):
            line = part.line + part.text.count("\n", 0, match.start())
            found[match[0]] = match["shown"]
            try:
                value = numbers.value(match["code"], self.space)
                right = numbers.like(match["shown"], value)
            except Exception as error:
                self.wrong(line, f"{match['code']}: {type(error).__name__}: {error}")
                continue
            computed[f"number {number}"] = values.summary(value)
            if right != match["shown"]:
                start = part.start + match.start("shown")
                fix = (start, start + len(match["shown"]), right)
                self.wrong(line, f"{match['code']} is {right}, not {match['shown']}", fix)
                found[match[0]] = right
        if computed:
            self.computed(part, computed)
        return numbers.render(claims.marked(part.text, self.claims), found)


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """In this folder, with warnings as errors."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        os.chdir(before)


def run(name: str, text: str, models: Path, accepted: Sequence[Values] | None = None) -> Ran:
    """Runs a page in the folder of the models. Problems name the file and the line; none means that all is right.

    `accepted` are the values that its parts are known to compute; None compares none.
    """
    with inside(models):
        return Runner(name, text, models, accepted).run()


def fixed(text: str, ran: Ran) -> str:
    """The source with the right outputs and numbers."""
    for start, end, right in sorted(ran.fixes, reverse=True):
        text = text[:start] + right + text[end:]
    return text
