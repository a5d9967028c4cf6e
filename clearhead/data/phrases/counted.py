"""Counted things and amounts: units, durations, relative times and currencies, for each plural form."""

import re
from collections.abc import Mapping
from typing import Any

from babel.numbers import get_currency_precision

from clearhead.data.phrases.inventory import CURRENCIES, DURATIONS, SYMBOLS, UNITS
from clearhead.data.phrases.locale_text import Parts
from clearhead.data.phrases.tree import BRACKETED, at, plain, slots

_FIRST_UNSPACED = "\u0e00"
"""The start of Thai. Except for Korean, Unicode's larger scripts from here on put no spaces between words."""


def read_quantities(data: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, dict[str, Parts]]:
    """Counted things, except patterns merely inherited from the root locale ("{0} h", "+{0} d")."""
    found: dict[str, dict[str, Parts]] = {}
    for unit in (*UNITS, *(f"duration-{d}" for d in DURATIONS)):
        inherited = set(at(root, "unit_patterns", unit, "short").values())
        forms = {**at(data, "unit_patterns", unit, "short"), **at(data, "unit_patterns", unit, "long")}
        own = {f: p for f, p in forms.items() if f != "per"}
        usable = not inherited & set(own.values()) and not any(BRACKETED.search(_noun(p)) for p in own.values())
        if usable and "{0}" in own.get("other", ""):
            key = f"duration:{unit[9:]}" if unit.startswith("duration-") else f"unit:{unit}"
            found[key] = {form: _counted(pattern, "unit") for form, pattern in own.items()}
    for name in DURATIONS:
        nouns = at(data, "unit_patterns", f"duration-{name}")
        nouns = {**nouns.get("short", {}), **nouns.get("long", {})}
        for key, tense in (("in", "future"), ("ago", "past")):
            forms = at(data, "date_fields", name, tense)
            if "other" in forms and f"duration:{name}" in found and forms != at(root, "date_fields", name, tense):
                found[f"{key}:{name}"] = {
                    form: _relative(pattern, _noun(nouns.get(form, nouns["other"]))) for form, pattern in forms.items()
                }
    joint = at(data, "currency_unit_patterns")
    for code in CURRENCIES:
        name = at(data, "currency_names").get(code)
        if name is None:
            continue
        plurals = {"other": name} | at(data, "currency_names_plural", code)
        if any(BRACKETED.search(text) for text in plurals.values()):
            continue
        found[f"currency:{code}"] = {
            form: _amount(joint.get(form, joint["other"]), text) for form, text in plurals.items()
        }
    return found


def _around(text: str, key: str) -> Parts:
    """`text` as a slot, with its surrounding spaces outside the slot."""
    bare = text.strip()
    start = text.find(bare)
    return tuple(p for p in (("", text[:start]), (key, bare), ("", text[start + len(bare) :])) if p[1])


def _counted(pattern: str, key: str) -> Parts:
    """`{0} hours`: a number and a unit. A unit that surrounds its number becomes two slots and is not aligned."""
    before, number, after = pattern.partition("{0}")
    return _around(before, key) + ((("number", ""),) if number else ()) + _around(after, key)


def _amount(pattern: str, name: str) -> Parts:
    return tuple({"0": ("number", ""), "1": ("currency", name)}.get(key, (key, text)) for key, text in slots(pattern))


def _noun(pattern: str) -> str:
    return pattern.replace("{0}", "").strip()


def _relative(pattern: str, noun: str) -> Parts:
    """`{0} days ago`: number, unit and direction. The noun of the unit's pattern tells unit and direction apart.

    An inflected noun (German "vor 3 Tagen", unit "Tage") matches by its first half and extends to the word's end.
    """
    before, number, after = pattern.partition("{0}")
    body = after.lstrip()
    half = max(1, len(noun) // 2)
    if not number or not noun or body[:half] != noun[:half]:
        return tuple(p for p in (("", before), ("number", ""), ("", after)) if p[1] or (p[0] and number))
    spaced = noun < _FIRST_UNSPACED
    exact = body.startswith(noun) and not (spaced and body[len(noun) : len(noun) + 1].isalpha())
    end = len(noun) if exact else len(body.split(" ")[0])
    space = after[: len(after) - len(body)]
    parts = (*_around(before, "relative"), ("number", ""), ("", space), ("unit", body[:end]))
    return tuple(p for p in parts if any(p)) + _around(body[end:], "relative")


def read_signs(data: Mapping[str, Any]) -> dict[str, Parts]:
    """`¤#,##0.00` for each currency that has its own sign in this locale and two or no decimals."""
    pattern = str(at(data, "currency_formats")["standard"]).split(";")[0]
    match = re.fullmatch(r"([^#0]*)[#0,.]+([^#0]*)", plain(pattern))
    if match is None or "-" in pattern:
        return {}
    found: dict[str, Parts] = {}
    for code in SYMBOLS:
        sign = str(at(data, "currency_symbols").get(code, code))
        if sign == code or get_currency_precision(code) not in (0, 2):
            continue
        if any(
            side.strip() and side.replace("¤", sign)[end].isalpha() for side, end in ((match[1], -1), (match[2], 0))
        ):
            continue  # Skipped because CLDR would insert a space between letters and digits.
        before, after = (re.split("(¤)", side) for side in match.groups())
        parts = [*before, "#", *after]
        found[code] = tuple(
            {"¤": ("currency", sign), "#": ("number", "")}.get(part, ("", part)) for part in parts if part
        )
    return found
