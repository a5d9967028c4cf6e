"""A phrase under construction: two languages fill and order the same slots."""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from clearhead.data.phrases.locale_text import LocaleText, Parts

_Run = tuple[tuple[str, int], ...]
"""Stretches of text with the number of their slot. Slot 0 is text of patterns."""
Fragment = tuple[_Run, _Run]
"""A fragment in both languages, the source first."""

_NOT_HEBREW = re.compile(r"[^\u0590-\u05ff]")
_BEFORE_I = re.compile(r"(?:i|hi(?![ae]))", re.IGNORECASE)
_BEFORE_O = re.compile(r"(?:h?o|8|11(?= ))", re.IGNORECASE)


@dataclass(frozen=True)
class Span:
    """Characters `[start, end)` of the source and the characters of the target that mean the same."""

    source: tuple[int, int]
    target: tuple[int, int]
    role: str


@dataclass(frozen=True)
class Phrase:
    """One translated phrase. Characters outside all spans are function words and punctuation."""

    source: str
    target: str
    kind: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Stock:
    """What phrases are made of, in both languages."""

    sides: tuple[LocaleText, LocaleText]
    ids: Mapping[str, tuple[str, ...]]
    """Role -> the ids that both languages have names for, in a fixed order."""
    first_days: bool
    """Whether the first of a month may be named."""
    month_ranges: bool


class Draft:
    """Numbers the slots of one phrase, so that both languages can name the same one."""

    def __init__(self, stock: Stock, rng: random.Random) -> None:
        self.stock, self.rng = stock, rng
        self._roles: list[str] = [""]

    def leaf(self, parts: Callable[[LocaleText], Parts]) -> Fragment:
        """The same parts in both languages. Parts with equal keys share a slot."""
        source, target = map(parts, self.stock.sides)
        numbers: dict[str, int] = {"": 0}
        for key, _ in source:
            if key not in numbers:
                numbers[key] = len(self._roles)
                self._roles.append(key.rstrip("0123456789"))
        return tuple((text, numbers[key]) for key, text in source), tuple(
            (text, numbers.get(key, 0)) for key, text in target
        )

    def join(self, pattern: str, *pieces: Fragment) -> Fragment:
        """Puts `pieces` into the places `{0}`, `{1}` of both languages' pattern."""
        (source, target), (sources, targets) = self.stock.sides, zip(*pieces, strict=True)
        return _fill(source, pattern, sources), _fill(target, pattern, targets)

    def listed(self, kind: str, pieces: Sequence[Fragment]) -> Fragment:
        """`pieces` as a list: `and`, `or`, or `unit` (quantities that add up)."""
        if len(pieces) < 3:
            return self.join(f"{kind} 2", *pieces) if len(pieces) == 2 else pieces[0]
        joined = self.join(f"{kind} start", *pieces[:2])
        for piece in pieces[2:-1]:
            joined = self.join(f"{kind} middle", joined, piece)
        return self.join(f"{kind} end", joined, pieces[-1])

    def phrase(self, piece: Fragment, kind: str) -> Phrase:
        """The finished phrase. A slot gets a span only if it occurs exactly once on each side."""
        source, target = map(_offsets, piece)
        spans = (
            Span(source[slot][0], target[slot][0], self._roles[slot])
            for slot in source
            if slot and len(source[slot]) == 1 and len(target.get(slot, ())) == 1
        )
        return Phrase(_text(piece[0]), _text(piece[1]), kind, tuple(spans))


def _text(run: _Run) -> str:
    return "".join(text for text, _ in run)


def _offsets(run: _Run) -> dict[int, list[tuple[int, int]]]:
    offsets: dict[int, list[tuple[int, int]]] = {}
    at = 0
    for text, slot in run:
        if text:
            offsets.setdefault(slot, []).append((at, at + len(text)))
        at += len(text)
    return offsets


def _fill(side: LocaleText, pattern: str, runs: Sequence[_Run]) -> _Run:
    filled: list[tuple[str, int]] = []
    for key, text in side.joins[pattern]:
        if key:
            filled.extend(runs[int(key)])
        else:
            filled.append((_conjunction(side.tag, text, runs[1]) if len(runs) > 1 else text, 0))
    return tuple(filled)


def _conjunction(tag: str, text: str, following: _Run) -> str:
    """Spanish `y`, `o` and Hebrew `ו` change with the following word (as in ICU's ListFormatter)."""
    language = tag[:2] if tag[2:3] in ("", "_") else ""
    if language == "es" and text == " y " and _BEFORE_I.match(_text(following)):
        return " e "
    if language == "es" and text == " o " and _BEFORE_O.match(_text(following)):
        return " u "
    if language == "he" and text.endswith("ו") and _NOT_HEBREW.match(_text(following)):
        return f"{text}-"
    return text
