"""Reads one locale's names and patterns from CLDR through Babel, and cuts them into tagged parts.

Slots come from walking CLDR's patterns, never from searching text.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from babel import Locale

from clearhead.data.phrases.counted import read_quantities, read_signs
from clearhead.data.phrases.inventory import COUNTRIES, CURRENCIES, FULL_WIDTH_BRACKETS, LANGUAGES, ZERO
from clearhead.data.phrases.locale_text import LocaleText, Part, Parts
from clearhead.data.phrases.tree import BRACKETED, Untranslated, at, plain, slots, tree

_FIELD = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


def read_locale(locale: Locale) -> LocaleText:
    """Everything the composer needs of `locale`. Raises `Untranslated` if a whole pattern is missing."""
    data, root = tree(str(locale)), tree("root")
    system = locale.default_numbering_system
    if system not in ZERO:
        raise Untranslated(f"the digits of its numbering system {system!r}")
    symbols = {**at(data, "number_symbols", "latn"), **at(data, "number_symbols", system)}
    calendar = _calendar(data)
    return LocaleText(
        tag=str(locale),
        names=_names(data) | {"month": _numbered(calendar["LLLL"]), "weekday": _numbered(calendar["cccc"])},
        calendar=calendar,
        dates=_dates(data, calendar),
        joins=_joins(data, locale.language),
        quantities=read_quantities(data, root),
        signs=read_signs(data),
        decimal=plain(symbols["decimal"]),
        group=plain(symbols["group"]),
        digits={ord("0") + n: chr(ord(ZERO[system]) + n) for n in range(10)},
        plural=locale.plural_form,
    )


def _numbered(words: Sequence[str]) -> dict[str, str]:
    return {str(i): word for i, word in enumerate(words)}


def _names(data: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """CLDR's names, except those that are ids or contain punctuation with which the composer joins names."""
    wanted: tuple[tuple[str, str, Iterable[str]], ...] = (
        ("country", "territories", COUNTRIES),
        ("language", "languages", LANGUAGES),
        ("currency", "currency_names", CURRENCIES),
    )
    return {
        role: {
            code: table[code]
            for code in codes
            if code in table and table[code].casefold() != code.casefold() and not BRACKETED.search(table[code])
        }
        for role, table, codes in ((role, at(data, key), codes) for role, key, codes in wanted)
    }


def _calendar(data: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The words of dates. Raises `Untranslated` if they are CLDR's ids ("M05", "Q2") or missing."""
    wanted = {"MMMM": ("months", "format"), "LLLL": ("months", "stand-alone"), "EEEE": ("days", "format")}
    wanted |= {"cccc": ("days", "stand-alone"), "QQQQ": ("quarters", "format"), "qqqq": ("quarters", "stand-alone")}
    words: dict[str, tuple[str, ...]] = {}
    for code, (table, context) in wanted.items():
        found = at(data, table, context, "wide") or at(data, table, "format", "wide")
        words[code] = tuple(found[key] for key in sorted(found, key=int))
        if any(re.fullmatch(r"[MQ]?\d+|Mon|Tue", word) for word in words[code]) or not words[code]:
            raise Untranslated(f"names of its {table}")
    short, wide = (at(data, "day_periods", "format", width) for width in ("abbreviated", "wide"))
    periods = {"am": "AM", "pm": "PM"} | wide | {k: v for k, v in short.items() if v not in ("AM", "PM")}
    words["a"] = (periods["am"], periods["pm"])
    return words


def _fields(pattern: str, calendar: Mapping[str, Sequence[str]]) -> Parts:
    """A CLDR date pattern as parts keyed by field. Raises `Untranslated` if a word is missing."""
    parts: list[Part] = []
    for match in _FIELD.finditer(pattern):
        quoted, letter, code = match[1], match[2], match[0]
        if letter is None:
            parts.append(("", code if quoted is None else quoted.replace("''", "'") or "'"))
            continue
        code = {"E": "EEEE", "EE": "EEEE", "EEE": "EEEE", "b": "a", "yyyy": "y"}.get(code, code)
        numeric = letter in "ydMLQqHhKkm" and len(code) <= 2 and code != "yy"
        if not numeric and code not in calendar:
            raise Untranslated(f"a date pattern with {code!r}")
        parts.append((code, ""))
    return tuple(parts)


def _dates(data: Mapping[str, Any], calendar: Mapping[str, Sequence[str]]) -> dict[str, Parts]:
    skeletons = at(data, "datetime_skeletons")
    time = at(data, "time_formats")["short"]
    patterns = {
        "full": at(data, "date_formats")["full"],
        "long": at(data, "date_formats")["long"],
        "month day": skeletons.get("MMMMd", ""),
        "quarter": skeletons.get("yQQQQ", ""),
        "time": skeletons.get("Hm", "HH:mm") if "B" in time else time,
    }
    months = at(data, "interval_formats", "yMMMM").get("M")
    if isinstance(months, list) and len(months) == 2:
        patterns |= {"from month": plain(months[0]), "to month": plain(months[1])}
    if not patterns["month day"] or not patterns["quarter"]:
        raise Untranslated("patterns of its dates")
    return {name: _fields(pattern, calendar) for name, pattern in patterns.items()}


def _joins(data: Mapping[str, Any], language: str) -> dict[str, Parts]:
    lists = at(data, "list_patterns")
    # CLDR's inheritance between list types, which Babel does not apply.
    chains = {"and": ("standard",), "or": ("or",), "unit": ("unit", "unit-short", "standard")}
    joins = {
        "glue": at(data, "datetime_formats")["medium"],
        "range": str(data["interval_formats"]["None"]),
        "brackets": "{0}（{1}）" if language in FULL_WIDTH_BRACKETS else "{0} ({1})",
        "dash": "{0} – {1}",
    }
    for name, chain in chains.items():
        merged: dict[str, str] = {}
        for kind in reversed(chain):
            merged |= at(lists, kind)
        if not {"start", "middle", "end", "2"} <= merged.keys():
            raise Untranslated(f"its {name!r} lists")
        joins |= {f"{name} {part}": merged[part] for part in ("start", "middle", "end", "2")}
    return {name: slots(pattern) for name, pattern in joins.items()}
