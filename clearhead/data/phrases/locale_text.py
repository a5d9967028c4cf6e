"""One locale's names, dates, numbers and counted things, always as tagged parts.

A part is `(key, text)`. The key names a slot that the other language also has ("month", "number", "unit"). It is
empty for the pattern's own words and punctuation. `locales.json.xz` holds the names and patterns of CLDR; tools/
demo_locales.py writes it.
"""

import json
import lzma
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from clearhead.recipe import merge

Part = tuple[str, str]
Parts = tuple[Part, ...]
Forms = Mapping[str, Parts]
"""Parts of a pattern for each plural form ("one", "few", "other")."""


@dataclass(frozen=True)
class LocaleText:
    """The text of one locale. Methods return parts."""

    tag: str
    names: Mapping[str, Mapping[str, str]]
    """role ("country", "language", "currency", "month", "weekday") -> id -> name as it stands alone."""
    calendar: Mapping[str, Sequence[str]]
    """CLDR date field ("MMMM", "LLLL", "EEEE", "cccc", "QQQQ", "a") -> its words."""
    dates: Mapping[str, Parts]
    """`full`, `long`, `month day`, `quarter`, `time`, `from month`, `to month` -> parts by CLDR field."""
    joins: Mapping[str, Parts]
    """`glue`, `range`, `brackets`, `dash` and the lists (`and 2`, `or end`, ...) -> parts with "0", "1"."""
    quantities: Mapping[str, Forms]
    """`unit:length-meter`, `duration:day`, `in:day`, `ago:day`, `currency:EUR` -> a pattern each form."""
    signs: Mapping[str, Parts]
    decimal: str
    group: str
    digits: Mapping[int, str]
    plural: Mapping[str, str]
    """CLDR's rule of each plural form but "other"."""
    _forms: dict[str, str] = field(default_factory=dict)

    def number(self, value: str) -> str:
        """`value` ("12500", "3.5") in this locale's digits and separators, grouped from 10,000 up."""
        whole, _, fraction = value.partition(".")
        if len(whole) > 4:
            whole = f"{whole[:-3]}{self.group}{whole[-3:]}"
        return (whole + (self.decimal + fraction if fraction else "")).translate(self.digits)

    def quantity(self, key: str, value: str) -> Parts:
        """A counted thing, in the pattern of the plural form that `value` takes."""
        if value not in self._forms:
            self._forms[value] = plural_form(self.plural, value)
        forms = self.quantities[key]
        parts = forms.get(self._forms[value]) or forms["other"]
        return tuple((k, self.number(value) if k == "number" else text) for k, text in parts)

    def sign(self, code: str, value: str) -> Parts:
        """An amount with its currency's sign: `€12.50`, `12,50 €`."""
        return tuple((k, self.number(value) if k == "number" else text) for k, text in self.signs[code])

    def date(self, name: str, day: date, hour: int = 0, minute: int = 0) -> Parts:
        """`day` and the time in the date pattern called `name`."""
        quarter = (day.month + 2) // 3
        numbers = {"y": day.year, "d": day.day, "M": day.month, "L": day.month, "Q": quarter, "q": quarter, "m": minute}
        numbers |= {"H": hour, "k": hour or 24, "h": hour % 12 or 12, "K": hour % 12}
        words = {"M": day.month - 1, "L": day.month - 1, "E": day.weekday(), "c": day.weekday()}
        words |= {"Q": quarter - 1, "q": quarter - 1, "a": hour // 12}
        parts: list[Part] = []
        for code, text in self.dates[name]:
            letter, width = code[:1], len(code)
            if not code:
                parts.append(("", text))
            elif code in self.calendar:
                parts.append((_SLOTS[letter], self.calendar[code][words[letter]]))
            else:
                parts.append((_SLOTS[letter], f"{numbers[letter]:0{width}d}".translate(self.digits)))
        return tuple(parts)


_SLOTS = {"y": "year", "M": "month", "L": "month", "d": "day", "E": "weekday", "c": "weekday", "Q": "quarter"}
_SLOTS |= {"q": "quarter", "H": "hour24", "k": "hour24", "h": "hour12", "K": "hour12", "m": "minute", "a": "period"}


@cache
def catalog() -> dict[str, Any]:
    """`locales` by tag, each by what it does not share with the one it is `like`; `aliases` of tags; and `cents`, the
    currencies with two decimals.
    """
    content = lzma.decompress(Path(__file__).with_name("locales.json.xz").read_bytes())
    return json.loads(content)


@cache
def read_locale(tag: str) -> LocaleText:
    """The text of a locale of the catalog."""
    texts = _texts(tag)
    calendar = texts["calendar"]
    alone = {"month": calendar["LLLL"], "weekday": calendar["cccc"]}
    return LocaleText(
        tag=tag,
        names=texts["names"] | {role: {str(i): word for i, word in enumerate(words)} for role, words in alone.items()},
        calendar=calendar,
        dates=_parts(texts["dates"]),
        joins=_parts(texts["joins"]),
        quantities={key: _parts(forms) for key, forms in texts["quantities"].items()},
        signs=_parts(texts["signs"]),
        decimal=texts["decimal"],
        group=texts["group"],
        digits={ord("0") + n: chr(ord(texts["zero"]) + n) for n in range(10)},
        plural=texts["plural"],
    )


def _texts(tag: str) -> dict[str, Any]:
    own = dict(catalog()["locales"][tag])
    return _without_none(merge(_texts(own.pop("like")), own)) if "like" in own else own


def _without_none(tables: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in tables.items() if value is not None}
    return {key: _without_none(value) if isinstance(value, dict) else value for key, value in kept.items()}


_PART = re.compile(r"\{(\w+):([^}]*)\}|([^{]+)")


def _parts(patterns: Mapping[str, str]) -> dict[str, Parts]:
    """`{number:} {unit:hours}` as parts."""
    return {
        name: tuple((match[1] or "", match[2] if match[1] else match[3]) for match in _PART.finditer(pattern))
        for name, pattern in patterns.items()
    }


_CONDITION = re.compile(r"(\w)(?: mod (\d+))? (not )?in (.+)")


def plural_form(rules: Mapping[str, str], value: str) -> str:
    """The plural form of a number that is written without exponent, such as "3.5"   (Unicode TS 35, part 3, 5.1)"""
    whole, _, decimals = value.partition(".")
    operands = {"n": float(value), "i": int(whole), "v": len(decimals), "f": int(decimals or 0), "e": 0}
    operands["t"] = int(decimals.rstrip("0") or 0)

    def holds(condition: str) -> bool:
        match = _CONDITION.fullmatch(condition)
        assert match is not None, condition
        number = operands[match[1]] % int(match[2]) if match[2] else operands[match[1]]
        ranges = (each.partition("..") for each in match[4].split(","))
        is_in = any(int(low) <= number <= int(high or low) for low, _, high in ranges) and number == int(number)
        return is_in is not bool(match[3])

    for form, rule in rules.items():
        if any(all(map(holds, each.split(" and "))) for each in rule.split(" or ")):
            return form
    return "other"
