"""What is wrong with a page before it runs: a number that nothing computes, code of no block, a wrong command."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence

from clearhead_lab.course import claims, commands, numbers
from clearhead_lab.course.page import FIGURES, Part, captions

COMMAND = re.compile(r"(?:clearhead|python) ")
LAST = {
    *("softmax", "log_softmax", "cosine_similarity", "cumsum", "sort", "argmax", "argmin", "max", "min", "norm"),
}
"""What chapters do along the last axis alone."""
EITHER = {"mean", "sum", "std", "var", "all", "any", "squeeze", "unsqueeze"}
"""What they do along the first axis, too."""


def complaints(everything: Sequence[Part]) -> Iterator[tuple[int, str]]:
    """The line and what is wrong there."""
    shown = "\n".join(part.text for part in everything if part.language)
    for part in everything:
        if not part.language:
            yield from _prose(part, shown)
        elif part.language in FIGURES:
            for caption in captions(part):
                yield from _prose(caption, shown)
        elif part.language == "python":
            yield from _comments(part)
            yield from _axes(part)
        elif part.language in commands.SHELLS:
            yield from _shell(part)
    yield from claims.complaints(everything)


def _prose(part: Part, shown: str) -> Iterator[tuple[int, str]]:
    for at, number in numbers.stray(part.text):
        line = part.line + part.text.count("\n", 0, at)
        yield line, f"{number!r} is a number that no expression computes; write {{{{{number} = ...}}}}"
    for found in numbers.CODE.finditer(numbers.INLINE.sub(_blank, part.text)):
        span, line = found[0].strip("`"), part.line + part.text.count("\n", 0, found.start())
        if COMMAND.match(span):
            if said := commands.complaint(span, whole=False):
                yield line, f"`{span}`: {said}"
        elif re.search(r"\d", numbers.NAMES.sub("", span)) and span not in shown:
            yield line, f"`{span}` stands in no block of the page"


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def _comments(part: Part) -> Iterator[tuple[int, str]]:
    try:
        tokens = [*tokenize.generate_tokens(io.StringIO(part.text).readline)]
    except (tokenize.TokenError, SyntaxError):  # The run says so.
        return
    for token in tokens:
        if token.type == tokenize.COMMENT and re.search(r"\d", numbers.NAMES.sub("", token.string)):
            yield part.line + token.start[0] - 1, f"{token.string!r} has a number, which nothing computes"


def _axes(part: Part) -> Iterator[tuple[int, str]]:
    """Axes that are neither the first, 0, nor the last, -1: one axis has one name in all chapters."""
    try:
        tree = ast.parse(part.text)
    except SyntaxError:  # The run says so.
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        given = [word.value for word in node.keywords if word.arg == "dim"]
        if isinstance(node.func, ast.Attribute) and name in LAST | EITHER:
            given += node.args[:1]
        allowed = (-1,) if name in LAST else (0, -1)
        for one in given:
            try:
                axis = ast.literal_eval(one)
            except ValueError:
                continue
            if isinstance(axis, int) and axis not in allowed:
                yield part.line + one.lineno - 1, f"axis {axis} of {name}: write {' or '.join(map(str, allowed))}"


def _shell(part: Part) -> Iterator[tuple[int, str]]:
    for number, line in commands.lines(part.text):
        if said := commands.complaint(line):
            yield part.line + number, f"{line}: {said}"
