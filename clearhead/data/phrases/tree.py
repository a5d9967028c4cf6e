"""Babel's data of one locale as plain dictionaries, and helpers to read it."""

import re
from collections.abc import Mapping
from typing import Any

from babel import localedata

from clearhead.data.phrases.locale_text import Parts

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
