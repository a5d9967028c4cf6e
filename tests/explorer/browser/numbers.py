"""Numbers as the page writes them, against numbers as Python has them."""

import re
from collections.abc import Callable, Mapping, Sequence

from clearhead.analysis.scores import OVAttribution, QKAttribution

SLACK = 1e-5
NUMBER = re.compile(r"(?P<beyond>[<>]\s*)?(?P<digits>−?(?:\d+(?:\.\d*)?|\.\d+)(?:e-?\d+)?)(?P<percent>\s*%)?")


def read(text: str) -> tuple[float, float]:
    """A number on the page, and half a step of its last digit: "−0.53" is (-0.53, 0.005), "81 %" (0.81, 0.005).

    "1 in 480" has two digits.
    """
    if found := re.fullmatch(r"1 in ([\d,]+)", text.strip()):
        value = 1 / int(found[1].replace(",", ""))
        return value, 0.06 * value
    found = NUMBER.fullmatch(text.strip())
    assert found is not None, f"{text!r} is not a number"
    digits = found["digits"].replace("−", "-")
    size, _, power = digits.partition("e")
    decimals = len(size.partition(".")[2])
    value, half = float(digits), 0.5 * 10.0 ** (int(power or 0) - decimals)
    if found["percent"]:
        value, half = value / 100, half / 100
    if found["beyond"]:
        return (value / 2, value / 2) if text.strip()[0] == "<" else ((1 + value) / 2, (1 - value) / 2)
    return value, half


def agrees(text: str, value: float) -> bool:
    """Whether a number is rightly written: within half its last digit, and 1e-5."""
    if text in ("∞", "−∞"):
        return value == float("inf" if text == "∞" else "-inf")
    number, half = read(text)
    return abs(number - value) <= half + SLACK


def mismatches(shown: Mapping[tuple[int, int], str], values: Sequence[Sequence[float]]) -> list[str]:
    """What is not rightly written of a table; a closed cell must be one in Python."""
    wrong: list[str] = []
    for (row, col), text in shown.items():
        value = values[row][col]
        if text == "masked" and value in (float("-inf"), 0):
            continue
        if not agrees(text, value):
            wrong.append(f"[{row}, {col}]: {text} for {value:.6f}")
    return wrong


def terms_agree(rows_of: Callable[[str], list[list[str]]], score: QKAttribution, carried: OVAttribution) -> None:
    """Asserts that the tables of *Why does it look there?* are Python's split of a score and of what it carries."""
    *rows, total = rows_of("The largest terms of the score")
    assert [agrees(row[-1], term) for row, (*_, term) in zip(rows, score.top(12), strict=False)] == [True] * 12
    assert agrees(total[-1], score.score)
    *_, added = rows_of("What the value adds")
    assert agrees(added[-1], carried.contribution)
