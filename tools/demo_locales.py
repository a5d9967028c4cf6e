"""Writes the words and patterns of `clearhead demo`, and names of languages: `python tools/demo_locales.py`.

Needs Babel, which holds CLDR.

Reads each locale's names and patterns through Babel, and cuts them into tagged parts, as
clearhead/data/phrases/locale_text.py describes them. Slots come from walking CLDR's patterns, never from searching
text. A locale is left out if CLDR has too few names of its own for it.
"""

import json
import lzma
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from babel import Locale, UnknownLocaleError, localedata
from babel.core import LOCALE_ALIASES, get_global
from babel.numbers import get_currency_precision

PACKAGE = Path(__file__).parent.parent / "clearhead"
OUT, NAMES = PACKAGE / "data" / "phrases" / "locales.json.xz", PACKAGE / "recipe" / "languages.json"
Parts = tuple[tuple[str, str], ...]

# --- what the corpus covers: ids that every well-kept locale translates, and few enough to learn ---------------------

COUNTRIES: tuple[str, ...] = tuple(
    """
    AD AE AF AL AM AO AR AT AU AZ BB BD BE BF BG BH BI BJ BN BO BR BS BT BW BY BZ CA CF CH CI CL CM CN CO
    CR CU CY CZ DE DJ DK DO DZ EC EE EG ER ES ET FI FJ FR GA GB GE GH GM GN GQ GR GT GY HN HR HT HU ID IE
    IL IN IQ IR IS IT JM JO JP KE KG KH KM KP KR KW KZ LA LB LI LK LR LS LT LU LV LY MA MC MD ME MG MK ML
    MN MR MT MU MV MW MX MY MZ NA NE NG NI NL NO NP NZ OM PA PE PG PH PK PL PT PY QA RO RS RU RW SA SC SD
    SE SG SI SK SL SM SN SO SR SV SY TD TG TH TJ TM TN TR TZ UA UG US UY UZ VE VN YE ZA ZM ZW
    """.split()
)

LANGUAGES: tuple[str, ...] = tuple(
    """
    af am ar as ay az ba be bg bn bo br bs ca ce co cs cv cy da de dv el en eo es et eu fa fi fo fr fy ga
    gd gl gn gu ha he hi hr ht hu hy id ig is it ja jv ka kk km kn ko ku kw ky la lb ln lo lt lv mg mi mk
    ml mn mr ms mt my nb ne nl nn nv oc om or os pa pl ps pt qu rm ro ru rw sa sc sd se si sk sl sm sn so
    sq sr st su sv sw ta te tg th ti tk tr tt ty ug uk ur uz vi wo xh yi yo zh zu
    """.split()
)

CURRENCIES: tuple[str, ...] = tuple(
    """
    ARS AUD BRL CAD CHF CLP CNY COP CZK DKK EGP EUR GBP HKD HUF IDR ILS INR ISK JOD JPY KES KRW KWD KZT
    MAD MXN MYR NGN NOK NZD PEN PHP PKR PLN RON RSD RUB SAR SEK SGD THB TND TRY UAH USD VND ZAR
    """.split()
)

SYMBOLS: tuple[str, ...] = tuple("USD EUR GBP JPY INR KRW ILS VND BRL CAD AUD NZD MXN TWD".split())
"""Currencies with a sign of their own. The sign of any other currency is its code."""

DURATIONS: tuple[str, ...] = ("year", "month", "week", "day", "hour", "minute", "second")

UNITS: tuple[str, ...] = tuple(
    """
    length-millimeter length-centimeter length-meter length-kilometer length-inch length-foot length-yard
    length-mile length-nautical-mile length-light-year mass-milligram mass-gram mass-kilogram mass-ounce
    mass-pound mass-tonne volume-milliliter volume-centiliter volume-liter volume-gallon
    volume-cubic-meter volume-tablespoon volume-teaspoon area-square-meter area-square-kilometer
    area-hectare speed-kilometer-per-hour speed-meter-per-second speed-mile-per-hour speed-knot
    temperature-celsius temperature-fahrenheit digital-bit digital-byte digital-kilobyte digital-megabyte
    digital-gigabyte digital-terabyte energy-joule energy-kilojoule energy-calorie energy-kilocalorie
    energy-kilowatt-hour power-watt power-kilowatt power-horsepower frequency-hertz frequency-megahertz
    frequency-gigahertz electric-volt electric-ampere electric-ohm pressure-hectopascal pressure-bar
    graphics-pixel graphics-megapixel concentr-percent
    """.split()
)

AT_LEAST = {"country": 60, "language": 40, "currency": 20, "symbol": 1, "unit": 20, "duration": 7, "relative": 4}
"""Minimum number of translated names per role for a locale to be composed from."""

FULL_WIDTH_BRACKETS: frozenset[str] = frozenset({"zh", "yue"})

ZERO: dict[str, str] = {
    "latn": "0",
    "arab": "\u0660",
    "arabext": "\u06f0",
    "deva": "\u0966",
    "beng": "\u09e6",
    "guru": "\u0a66",
    "gujr": "\u0ae6",
    "mymr": "\u1040",
    "tibt": "\u0f20",
    "khmr": "\u17e0",
    "olck": "\u1c50",
    "cakm": "\U00011136",
    "adlm": "\U0001e950",
    "rohg": "\U00010d30",
    "mtei": "\uabf0",
}
"""The digit zero of every numbering system that some locale uses by default. The other nine digits follow it."""


# --- Babel's data as plain dictionaries ------------------------------------------------------------------------------

# CLDR's typographic spaces and direction marks carry no meaning here and no keyboard has them.
_PLAIN = {ord(c): " " for c in "\u00a0\u2007\u2009\u202f"} | dict.fromkeys(map(ord, "\u200b\u200e\u200f\u061c"))
BRACKETED = re.compile(r"[()（）\[\],、،/:;–—0-9]| - ")
"""Strings that join names in the composer. A name that contains one would look like a composition."""


class Untranslated(LookupError):
    """CLDR has no translation here for this locale: it would show an id or another language."""


def plain(text: str) -> str:
    """`text` with ordinary spaces and without direction marks."""
    return text.translate(_PLAIN)


def tree(tag: str) -> dict[str, Any]:
    """Babel's data of one locale as plain nested dictionaries with string keys.

    Resolves aliases. Babel's own LocaleDataDict does that in place and leaves a wrapper instead of a dict in the
    cached parent locale, which breaks the merging of children loaded later.
    """
    data: dict[str | int | None, Any] = {**localedata.load(tag)}

    def walk(node: Any) -> Any:
        if isinstance(node, localedata.Alias):
            return walk(node.resolve(data))
        if isinstance(node, tuple):  # an alias and this locale's overrides
            return _merged(walk(node[0]), walk(node[1]))
        if isinstance(node, (dict, localedata.LocaleDataDict)):
            return {str(key): walk(node[key]) for key in node}
        text = getattr(node, "pattern", node)  # a date or number pattern, or a plain value
        return plain(text) if isinstance(text, str) else text

    return {str(key): walk(data[key]) for key in data if key in _READ}


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both = {
        k: _merged(below[k], v) if isinstance(v, dict) and isinstance(below.get(k), dict) else v
        for k, v in above.items()
    }
    return below | both


_READ = frozenset(
    """
    territories languages currency_names currency_names_plural currency_symbols days months
    currency_unit_patterns currency_formats quarters day_periods date_formats time_formats
    datetime_formats datetime_skeletons interval_formats list_patterns unit_patterns date_fields
    number_symbols
    """.split()
)


def at(tree: Mapping[str, Any], *path: str) -> dict[str, Any]:
    """The dictionary at `path` in `tree`, or an empty one."""
    node: Any = tree
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else {}


def slots(pattern: str) -> Parts:
    """`{0} and {1}` as parts keyed "0" and "1"."""
    return tuple((p[1], "") if re.fullmatch(r"\{\d\}", p) else ("", p) for p in re.split(r"(\{\d\})", pattern) if p)


# --- names, dates and lists ------------------------------------------------------------------------------------------

_FIELD = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


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
    parts: list[tuple[str, str]] = []
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


# --- counted things and amounts, for each plural form ----------------------------------------------------------------

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


# --- the file --------------------------------------------------------------------------------------------------------


def texts_of(locale: Locale) -> dict[str, Any]:
    """All that the composer needs of a locale. Raises Untranslated if a whole pattern is missing."""
    data, root = tree(str(locale)), tree("root")
    system = locale.default_numbering_system
    if system not in ZERO:
        raise Untranslated(f"the digits of its numbering system {system!r}")
    symbols = {**at(data, "number_symbols", "latn"), **at(data, "number_symbols", system)}
    calendar = _calendar(data)
    return {
        "names": _names(data),
        "calendar": calendar,
        "dates": _dates(data, calendar),
        "joins": _joins(data, locale.language),
        "quantities": {key: _distinct(forms) for key, forms in read_quantities(data, root).items()},
        "signs": read_signs(data),
        "decimal": plain(symbols["decimal"]),
        "group": plain(symbols["group"]),
        "zero": ZERO[system],
        "plural": dict(locale.plural_form.rules),
    }


def _distinct(forms: dict[str, Parts]) -> dict[str, Parts]:
    """The plural forms that are not written as `other` is."""
    return {form: parts for form, parts in forms.items() if form == "other" or parts != forms["other"]}


def is_enough(english: Mapping[str, Any], texts: Mapping[str, Any]) -> bool:
    """Whether a locale has names for enough things that English has names for."""
    both = {role: english["names"][role].keys() & texts["names"][role].keys() for role in ("country", "language")}
    counted = english["quantities"].keys() & texts["quantities"].keys()
    both["currency"] = {code for code in texts["names"]["currency"] if f"currency:{code}" in counted}
    both["symbol"] = english["signs"].keys() & texts["signs"].keys()
    for role, starts in {"unit": ("unit:",), "duration": ("duration:",), "relative": ("in:", "ago:")}.items():
        both[role] = {key for key in counted if key.startswith(starts)}
    return all(len(both[role]) >= least for role, least in AT_LEAST.items())


def locales() -> dict[str, dict[str, Any]]:
    """The texts of English and of every locale that has enough of them, by its tag."""
    found = {"en": texts_of(Locale("en"))}
    for tag in sorted(localedata.locale_identifiers()):
        with suppress(Untranslated, KeyError, UnknownLocaleError, ValueError):
            locale = Locale.parse(tag)
            if locale.language != "en" and is_enough(found["en"], texts := texts_of(locale)):
                found[str(locale)] = texts
    return found


def aliases(tags: Sequence[str]) -> dict[str, str]:
    """Other names of these locales, such as zh_TW for zh_Hant_TW."""
    known, folded = set(tags), {tag.casefold() for tag in tags}
    tried = {*localedata.locale_identifiers(), *LOCALE_ALIASES, *get_global("language_aliases")}
    tried |= {f"{tag.split('_')[0]}_{tag.split('_')[-1]}" for tag in known}
    found: dict[str, str] = {}
    for name in sorted(name for name in tried if name.casefold() not in folded):
        with suppress(UnknownLocaleError, ValueError):
            if (tag := str(Locale.parse(name))) in known:
                found[name] = tag
    return found


def differences(texts: dict[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each locale by what it does not share with the most similar one before it that begins its tag."""
    for tag, own in texts.items():
        before = [(len(json.dumps(change)), one, change) for one, change in _candidates(tag, own, texts)]
        if not before:
            yield tag, own
            continue
        _, like, change = min(before, key=lambda each: each[0])
        yield tag, {"like": like, **change}


def _candidates(
    tag: str, own: dict[str, Any], texts: Mapping[str, dict[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for other in texts:
        if tag.startswith(f"{other}_"):
            yield other, _changed(texts[other], own)


def _changed(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """What to merge into `below` for `above`; None removes a key."""
    found: dict[str, Any] = {key: None for key in below if key not in above}
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            if change := _changed(below[key], value):
                found[key] = change
        elif below.get(key) != value:
            found[key] = value
    return found


def written(parts: Any) -> Any:
    """Parts as one text, `{number} {unit:hours}`; other values as they are."""
    if isinstance(parts, dict):
        return {key: written(value) for key, value in parts.items()}
    if isinstance(parts, tuple) and all(isinstance(part, tuple) for part in parts):
        return "".join(f"{{{key}:{text}}}" if key else text for key, text in parts)
    return parts


def document() -> dict[str, Any]:
    """The content of the file."""
    texts = {tag: written(one) for tag, one in locales().items()}
    return {
        "locales": dict(differences(texts)),
        "aliases": aliases([*texts]),
        "cents": [code for code in dict.fromkeys((*CURRENCIES, *SYMBOLS)) if get_currency_precision(code) == 2],
    }


def packed(content: dict[str, Any]) -> bytes:
    """The file."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "pb": 0}]
    return lzma.compress(text, filters=filters)


def language_names() -> str:
    """The English name of every language with a code of two or three letters, by code."""
    names = {code: name for code, name in sorted(Locale("en").languages.items()) if len(code) <= 3}
    return json.dumps(names, ensure_ascii=False, indent=0) + "\n"


if __name__ == "__main__":
    NAMES.write_text(language_names(), encoding="utf-8")
    print(f"{OUT}: {OUT.write_bytes(packed(document())):,} bytes")
