"""One locale's names, dates, numbers and counted things, always as tagged parts.

A part is `(key, text)`. The key names a slot that the other language also has ("month", "number", "unit"). It is
empty for the pattern's own words and punctuation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

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
    plural: Callable[[Decimal], str]
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
            self._forms[value] = self.plural(Decimal(value))
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
