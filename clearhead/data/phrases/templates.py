"""The shapes of phrases: names in lists, brackets and dashes, never in sentences, so nothing inflects."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from clearhead.data.phrases.draft import Draft, Fragment
from clearhead.data.phrases.locale_text import LocaleText, Parts, catalog

_FIRST_DAY = date(1900, 1, 1)
_N_DAYS = (date(2099, 12, 31) - _FIRST_DAY).days

_LARGEST = {"year": 30, "month": 11, "week": 12, "day": 30, "hour": 23, "minute": 59, "second": 59}
_MIXES = ("year month", "week day", "day hour", "hour minute", "minute second", "day hour minute", "hour minute second")


@dataclass(frozen=True)
class Stock:
    """Role -> the ids that both languages have names for, in a fixed order."""

    ids: Mapping[str, tuple[str, ...]]
    first_days: bool
    """Whether the first of a month may be named (see `ORDINAL_FIRST`)."""
    month_ranges: bool


class Composer:
    """Draws phrases of each kind. Every method named after a kind returns one."""

    def __init__(self, draft: Draft, stock: Stock, rng: random.Random) -> None:
        self._draft = draft
        self._stock = stock
        self._rng = rng

    # Leaves.

    def _ids(self, role: str, n: int) -> list[str]:
        return self._rng.sample(self._stock.ids[role], n)

    def _name(self, role: str) -> Fragment:
        return self._names(role, 1)[0]

    def _names(self, role: str, n: int) -> list[Fragment]:
        return [self._draft.name(role, code) for code in self._ids(role, n)]

    def _day(self) -> date:
        day = _FIRST_DAY + timedelta(days=self._rng.randint(0, _N_DAYS))
        return day if self._stock.first_days or day.day > 1 else day + timedelta(days=self._rng.randint(1, 20))

    def _leaf(self, parts: Callable[[LocaleText], Parts]) -> Fragment:
        """The same parts in both languages."""
        return self._draft.leaf(parts(self._draft.source), parts(self._draft.target))

    def _date(self, name: str, day: date | None = None) -> Fragment:
        day = day or self._day()
        return self._leaf(lambda side: side.date(name, day))

    def _time(self) -> Fragment:
        hour, minute = self._rng.randint(0, 23), self._rng.choice((0, 15, 30, 45, self._rng.randint(0, 59)))
        return self._leaf(lambda side: side.date("time", _FIRST_DAY, hour, minute))

    def _quantity(self, key: str, value: str) -> Fragment:
        return self._leaf(lambda side: side.quantity(key, value))

    def _count(self) -> str:
        """Draws 1, a small or middling number, or a decimal. Every plural form is common and no number is long."""
        draw, rng = self._rng.random(), self._rng
        if draw < 0.3:
            return "1"
        if draw < 0.85:
            low, high = (2, 9) if draw < 0.5 else (10, 99) if draw < 0.75 else (100, 999)
            return str(rng.randint(low, high))
        return f"{rng.randint(1, 30)}.{rng.randint(1, 9)}"

    def _units(self, n: int) -> list[Fragment]:
        return [self._quantity(f"unit:{unit}", self._count()) for unit in self._ids("unit", n)]

    def _duration(self) -> Fragment:
        names = [name for name in self._rng.choice(_MIXES).split() if name in self._stock.ids["duration"]]
        return self._draft.listed("unit", [self._some(f"duration:{name}") for name in names])

    def _relative(self) -> Fragment:
        return self._some(self._rng.choice(self._stock.ids["relative"]))

    def _some(self, key: str) -> Fragment:
        """An amount of time, with one unit more often than chance would draw it."""
        value = 1 if self._rng.random() < 0.12 else self._rng.randint(2, _LARGEST[key.split(":")[1]])
        return self._quantity(key, str(value))

    def _amounts(self, n: int) -> list[Fragment]:
        return [self._amount(code) for code in self._ids("currency", n)]

    def _amount(self, code: str = "") -> Fragment:
        code = code or self._ids("currency", 1)[0]
        value = self._count().split(".")[0]
        draw = self._rng.random()
        if value == "1":
            draw = 1.0  # otherwise the singular would be rare
        if draw < 0.1:
            value = f"{self._rng.randint(100, 999)}00"
        elif draw < 0.3 and code in catalog()["cents"]:
            value = self._cents()
        return self._quantity(f"currency:{code}", value)

    def _cents(self) -> str:
        cents = self._rng.choice((10, 25, 50, 75, 90, 95, 99, self._rng.randint(1, 99)))
        return f"{self._rng.randint(1, 99)}.{cents:02d}"

    def _signed(self, code: str) -> Fragment:
        value = self._cents() if code in catalog()["cents"] else str(self._rng.randint(1, 999))
        return self._leaf(lambda side: side.sign(code, value))

    def _months(self) -> Fragment:
        """`March – May 2021`: two months of one year. Each language puts the year in its own place."""
        first, second = sorted(self._rng.sample(range(1, 13), 2))
        year = self._day().year

        def parts(side: LocaleText) -> Parts:
            start, end = side.date("from month", date(year, first, 2)), side.date("to month", date(year, second, 2))
            return (
                *(("month1" if key == "month" else key, text) for key, text in start),
                *(("month2" if key == "month" else key, text) for key, text in end),
            )

        return self._leaf(parts)

    def _locale(self) -> Fragment:
        return self._brackets(self._name("language"), self._name("country"))

    # Joints.

    def _list(self, pieces: Sequence[Fragment], kind: str = "") -> Fragment:
        return self._draft.listed(kind or self._rng.choice(("and", "and", "or")), pieces)

    def _dash(self, first: Fragment, second: Fragment) -> Fragment:
        return self._draft.join("dash", first, second)

    def _brackets(self, outer: Fragment, inner: Fragment) -> Fragment:
        return self._draft.join("brackets", outer, inner)

    def _range(self, first: Fragment, second: Fragment) -> Fragment:
        return self._draft.join("range", first, second)

    # Kinds.

    def dates(self) -> Fragment:
        draw = self._rng.random()
        if draw < 0.35:
            return self._date("full")
        if draw < 0.55:
            first = self._day()
            return self._range(self._date("long", first), self._date("long", self._later(first)))
        if draw < 0.75:
            first = self._day()
            days = [first, self._later(first), self._later(first)][: self._rng.randint(2, 3)]
            return self._list([self._date("month day", day) for day in days])
        if draw < 0.85 and self._stock.month_ranges:
            return self._months()
        if draw < 0.93:
            return self._list([self._date("quarter"), self._date("quarter")])
        return self._dash(self._date("long"), self._name_of("weekday", 2))

    def times(self) -> Fragment:
        draw = self._rng.random()
        if draw < 0.3:
            return self._duration()
        if draw < 0.45:
            return self._range(self._time(), self._time())
        if draw < 0.6:
            return self._brackets(self._time(), self._relative())
        if draw < 0.7:
            return self._list([self._relative(), self._relative()], "or")
        if draw < 0.85:
            return self._dash(self._relative(), self._duration())
        return self._dash(self._time(), self._duration())

    def countries(self) -> Fragment:
        return self._named("country")

    def languages(self) -> Fragment:
        if self._rng.random() < 0.3:
            return self._list([self._locale(), self._locale()])
        return self._named("language")

    def amounts(self) -> Fragment:
        draw = self._rng.random()
        if draw < 0.4:
            return self._list(self._amounts(self._rng.randint(2, 3)))
        if draw < 0.55:
            code = self._ids("symbol", 1)[0]
            return self._range(self._signed(code), self._signed(code))
        if draw < 0.7:
            return self._brackets(self._amount(), self._signed(self._ids("symbol", 1)[0]))
        if draw < 0.85:
            return self._dash(self._name_of("currency", 2), self._amount())
        return self._dash(*self._amounts(2))

    def units(self) -> Fragment:
        draw = self._rng.random()
        if draw < 0.6:
            return self._list(self._units(2 if draw < 0.3 else 3))
        first, second = self._units(2)
        return self._brackets(first, second) if draw < 0.8 else self._dash(first, second)

    def lists(self) -> Fragment:
        role = self._rng.choice(("country", "language", "currency", "month", "weekday"))
        return self._list(self._names(role, self._rng.randint(4, 5)))

    def compositions(self) -> Fragment:
        country = self._name("country")
        shapes: tuple[Callable[[], Fragment], ...] = (
            lambda: self._dash(self._draft.join("glue", self._time(), self._date("full")), country),
            lambda: self._dash(self._name_of("country", 2), self._duration()),
            lambda: self._dash(self._locale(), self._amount()),
            lambda: self._dash(self._brackets(country, self._name("currency")), self._amount()),
            lambda: self._dash(self._relative(), self._name_of("country", 2)),
            lambda: self._dash(self._date("long"), self._list(self._units(2))),
            lambda: self._dash(self._brackets(self._name("weekday"), self._relative()), self._time()),
            lambda: self._dash(self._brackets(country, self._units(1)[0]), self._name_of("language", 2)),
            lambda: self._dash(self._list([self._locale(), country], "or"), self._date("month day")),
        )
        return self._rng.choice(shapes)()

    def _named(self, role: str) -> Fragment:
        draw = self._rng.random()
        if draw < 0.45:
            return self._name_of(role, 3)
        names = self._names(role, 4)
        if draw < 0.65:
            return self._dash(names[0], self._list(names[2:]))
        return self._dash(self._list(names[:2]), self._list(names[2:]))

    def _name_of(self, role: str, n: int) -> Fragment:
        return self._list(self._names(role, n))

    def _later(self, day: date) -> date:
        later = day + timedelta(days=self._rng.randint(5, 400))
        return later if self._stock.first_days or later.day > 1 else later + timedelta(days=1)


SHAPES: Mapping[str, Callable[[Composer], Fragment]] = {
    "dates": Composer.dates,
    "times and durations": Composer.times,
    "countries": Composer.countries,
    "languages": Composer.languages,
    "currencies and amounts": Composer.amounts,
    "units": Composer.units,
    "lists": Composer.lists,
    "compositions": Composer.compositions,
}
