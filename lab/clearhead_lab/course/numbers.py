"""Numbers of the prose: each is written beside the expression that computes it, `{{0.34 = weights[0, 1]}}`."""

import re
from collections.abc import Mapping
from typing import Any

INLINE = re.compile(r"\{\{(?P<shown>[^={}]+?) = (?P<code>.+?)\}\}", re.DOTALL)
NUMBER = re.compile(r"[-−]?[\d,]*\.?\d+(?:e[-+]?\d+)?%?")
CODE = re.compile(r"`[^`\n]+`")
NO_PROSE = re.compile(r"\{\{.*?\}\}|`[^`\n]+`|\]\([^)\s]*\)|<[^>\n]*>|^---\n.*?\n---$", re.DOTALL | re.MULTILINE)
NAMES = re.compile(r"\b(?:GPT-2|gpt2|UTF-8|T5|word2vec|2017|2019)\b")
"""What holds a digit and is no number: names of models and standards, and the years that the chapters speak of."""


def value(code: str, space: dict[str, Any]) -> Any:
    """What an expression of the prose gives with the page's variables."""
    return eval(code, space)


def like(shown: str, value: Any) -> str:
    """Writes a number as `shown` is written: its decimals, as a percentage, with commas. Returns a text as it is."""
    if isinstance(value, str):
        return value
    number = value.item() if hasattr(value, "item") else value
    body = shown.removesuffix("%")
    if body != shown:
        number *= 100
    if "e" in body:
        text = f"{number:.{len(body.partition('e')[0].partition('.')[2])}e}"
        mantissa, _, exponent = text.partition("e")
        text = f"{mantissa}e{int(exponent)}"
    else:
        text = f"{number:{',' if ',' in body or abs(number) >= 10_000 else ''}.{len(body.partition('.')[2])}f}"
    if not float(text.replace(",", "")):
        text = text.removeprefix("-")
    return text.replace("-", "−") + ("%" if body != shown else "")


def stray(prose: str) -> list[tuple[int, str]]:
    """Numbers of the prose that no expression computes, and where they stand."""
    bare = NO_PROSE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), prose)
    bare = NAMES.sub(lambda found: " " * len(found[0]), bare)
    return [(found.start(), found[0]) for found in re.finditer(r"[−-]?\d[\d.,]*(?<![.,])%?", bare)]


def render(prose: str, found: Mapping[str, str]) -> str:
    """The prose with its numbers in place of their expressions."""
    return INLINE.sub(lambda match: found[match[0]], prose)
