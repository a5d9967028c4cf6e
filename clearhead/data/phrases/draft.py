"""A phrase under construction: two languages fill and order the same slots."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from clearhead.data.phrases.locale_text import LocaleText, Parts

_Run = tuple[tuple[str, int], ...]
"""Stretches of text with the number of their slot. Slot 0 is text of patterns."""

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
class Fragment:
    """A fragment in both languages."""

    source: _Run
    target: _Run


class Draft:
    """Numbers the slots of one phrase, so that both languages can name the same one."""

    def __init__(self, source: LocaleText, target: LocaleText) -> None:
        self.source = source
        self.target = target
        self._roles: list[str] = [""]

    def leaf(self, source: Parts, target: Parts) -> Fragment:
        """A piece from the parts of both languages. Parts with equal keys share a slot."""
        numbers: dict[str, int] = {"": 0}
        for key in (key for key, _ in source):
            if key not in numbers:
                numbers[key] = len(self._roles)
                self._roles.append(key.rstrip("0123456789"))
        return Fragment(
            tuple((text, numbers[key]) for key, text in source),
            tuple((text, numbers.get(key, 0)) for key, text in target),
        )

    def name(self, role: str, code: str) -> Fragment:
        """A name outside a sentence."""
        return self.leaf(((role, self.source.names[role][code]),), ((role, self.target.names[role][code]),))

    def join(self, pattern: str, *pieces: Fragment) -> Fragment:
        """Puts `pieces` into the places `{0}`, `{1}` of both languages' pattern."""
        return Fragment(
            _fill(self.source, pattern, [piece.source for piece in pieces]),
            _fill(self.target, pattern, [piece.target for piece in pieces]),
        )

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
        source, target = _offsets(piece.source), _offsets(piece.target)
        spans = (
            Span(source[slot][0], target[slot][0], self._roles[slot])
            for slot in source
            if slot and len(source[slot]) == 1 and len(target.get(slot, ())) == 1
        )
        return Phrase(_text(piece.source), _text(piece.target), kind, tuple(spans))


def _text(run: _Run) -> str:
    return "".join(text for text, _ in run)


def _offsets(run: _Run) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    at = 0
    for text, slot in run:
        if text:
            found.setdefault(slot, []).append((at, at + len(text)))
        at += len(text)
    return found


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
