"""The shapes of phrases: names in lists, brackets and dashes, never in sentences, so nothing inflects."""

from collections.abc import Callable, Mapping
from datetime import date, timedelta

from clearhead.data.phrases.draft import Draft, Fragment
from clearhead.data.phrases.locale_text import LocaleText, Parts, catalog

_FIRST_DAY = date(1900, 1, 1)
_N_DAYS = (date(2099, 12, 31) - _FIRST_DAY).days

_LARGEST = {"year": 30, "month": 11, "week": 12, "day": 30, "hour": 23, "minute": 59, "second": 59}
_MIXES = ("year month", "week day", "day hour", "hour minute", "minute second", "day hour minute", "hour minute second")


class Composer(Draft):
    """Draws phrases of each kind."""

    # Leaves.

    def _ids(self, role: str, n: int) -> list[str]:
        return self.rng.sample(self.stock.ids[role], n)

    def _called(self, role: str, code: str) -> Fragment:
        """A name outside a sentence."""
        return self.leaf(lambda side: ((role, side.names[role][code]),))

    def _names(self, role: str, n: int) -> list[Fragment]:
        return [self._called(role, code) for code in self._ids(role, n)]

    def _name(self, role: str) -> Fragment:
        return self._names(role, 1)[0]

    def _day(self) -> date:
        day = _FIRST_DAY + timedelta(days=self.rng.randint(0, _N_DAYS))
        return day if self.stock.first_days or day.day > 1 else day + timedelta(days=self.rng.randint(1, 20))

    def _later(self, day: date) -> date:
        later = day + timedelta(days=self.rng.randint(5, 400))
        return later if self.stock.first_days or later.day > 1 else later + timedelta(days=1)

    def _date(self, name: str, day: date | None = None) -> Fragment:
        day = day or self._day()
        return self.leaf(lambda side: side.date(name, day))

    def _time(self) -> Fragment:
        hour, minute = self.rng.randint(0, 23), self.rng.choice((0, 15, 30, 45, self.rng.randint(0, 59)))
        return self.leaf(lambda side: side.date("time", _FIRST_DAY, hour, minute))

    def _quantity(self, key: str, value: str) -> Fragment:
        return self.leaf(lambda side: side.quantity(key, value))

    def _count(self) -> str:
        """Draws 1, a small or middling number, or a decimal. Every plural form is common and no number is long."""
        draw, rng = self.rng.random(), self.rng
        if draw < 0.3:
            return "1"
        if draw < 0.85:
            low, high = (2, 9) if draw < 0.5 else (10, 99) if draw < 0.75 else (100, 999)
            return str(rng.randint(low, high))
        return f"{rng.randint(1, 30)}.{rng.randint(1, 9)}"

    def _units(self, n: int) -> list[Fragment]:
        return [self._quantity(f"unit:{unit}", self._count()) for unit in self._ids("unit", n)]

    def _duration(self) -> Fragment:
        names = [name for name in self.rng.choice(_MIXES).split() if name in self.stock.ids["duration"]]
        return self.listed("unit", [self._some(f"duration:{name}") for name in names])

    def _relative(self) -> Fragment:
        return self._some(self.rng.choice(self.stock.ids["relative"]))

    def _some(self, key: str) -> Fragment:
        """An amount of time, with one unit more often than chance would draw it."""
        value = 1 if self.rng.random() < 0.12 else self.rng.randint(2, _LARGEST[key.split(":")[1]])
        return self._quantity(key, str(value))

    def _amounts(self, n: int) -> list[Fragment]:
        return [self._amount(code) for code in self._ids("currency", n)]

    def _amount(self, code: str) -> Fragment:
        value = self._count().split(".")[0]
        draw = self.rng.random()
        if value == "1":
            draw = 1.0  # otherwise the singular would be rare
        if draw < 0.1:
            value = f"{self.rng.randint(100, 999)}00"
        elif draw < 0.3 and code in catalog()["cents"]:
            value = self._cents()
        return self._quantity(f"currency:{code}", value)

    def _cents(self) -> str:
        cents = self.rng.choice((10, 25, 50, 75, 90, 95, 99, self.rng.randint(1, 99)))
        return f"{self.rng.randint(1, 99)}.{cents:02d}"

    def _signed(self, code: str) -> Fragment:
        value = self._cents() if code in catalog()["cents"] else str(self.rng.randint(1, 999))
        return self.leaf(lambda side: side.sign(code, value))

    def _months(self) -> Fragment:
        """`March – May 2021`: two months of one year. Each language puts the year in its own place."""
        months = sorted(self.rng.sample(range(1, 13), 2))
        year = self._day().year

        def parts(side: LocaleText) -> Parts:
            return tuple(
                (f"month{i}" if key == "month" else key, text)
                for i, (name, month) in enumerate(zip(("from month", "to month"), months, strict=True), start=1)
                for key, text in side.date(name, date(year, month, 2))
            )

        return self.leaf(parts)

    def _locale(self) -> Fragment:
        return self.join("brackets", self._name("language"), self._name("country"))

    # Lists.

    def _list(self, *pieces: Fragment) -> Fragment:
        return self.listed(self.rng.choice(("and", "and", "or")), pieces)

    def _name_of(self, role: str, n: int) -> Fragment:
        return self._list(*self._names(role, n))

    # Kinds.

    def dates(self) -> Fragment:
        draw = self.rng.random()
        if draw < 0.35:
            return self._date("full")
        if draw < 0.55:
            first = self._day()
            return self.join("range", self._date("long", first), self._date("long", self._later(first)))
        if draw < 0.75:
            first = self._day()
            days = [first, self._later(first), self._later(first)][: self.rng.randint(2, 3)]
            return self._list(*(self._date("month day", day) for day in days))
        if draw < 0.85 and self.stock.month_ranges:
            return self._months()
        if draw < 0.93:
            return self._list(self._date("quarter"), self._date("quarter"))
        return self.join("dash", self._date("long"), self._name_of("weekday", 2))

    def times(self) -> Fragment:
        draw = self.rng.random()
        if draw < 0.3:
            return self._duration()
        if draw < 0.45:
            return self.join("range", self._time(), self._time())
        if draw < 0.6:
            return self.join("brackets", self._time(), self._relative())
        if draw < 0.7:
            return self.listed("or", [self._relative(), self._relative()])
        return self.join("dash", self._relative() if draw < 0.85 else self._time(), self._duration())

    def countries(self) -> Fragment:
        return self._named("country")

    def languages(self) -> Fragment:
        if self.rng.random() < 0.3:
            return self._list(self._locale(), self._locale())
        return self._named("language")

    def _named(self, role: str) -> Fragment:
        draw = self.rng.random()
        if draw < 0.45:
            return self._name_of(role, 3)
        first, second, *others = self._names(role, 4)
        return self.join("dash", first if draw < 0.65 else self._list(first, second), self._list(*others))

    def amounts(self) -> Fragment:
        draw = self.rng.random()
        if draw < 0.4:
            return self._list(*self._amounts(self.rng.randint(2, 3)))
        if draw < 0.55:
            code = self._ids("symbol", 1)[0]
            return self.join("range", self._signed(code), self._signed(code))
        if draw < 0.7:
            return self.join("brackets", *self._amounts(1), self._signed(*self._ids("symbol", 1)))
        if draw < 0.85:
            return self.join("dash", self._name_of("currency", 2), *self._amounts(1))
        return self.join("dash", *self._amounts(2))

    def units(self) -> Fragment:
        draw = self.rng.random()
        if draw < 0.6:
            return self._list(*self._units(2 if draw < 0.3 else 3))
        return self.join("brackets" if draw < 0.8 else "dash", *self._units(2))

    def lists(self) -> Fragment:
        role = self.rng.choice(("country", "language", "currency", "month", "weekday"))
        return self._name_of(role, self.rng.randint(4, 5))

    def compositions(self) -> Fragment:
        country = self._name("country")
        shapes: tuple[Callable[[], tuple[Fragment, ...]], ...] = (
            lambda: (self.join("glue", self._time(), self._date("full")), country),
            lambda: (self._name_of("country", 2), self._duration()),
            lambda: (self._locale(), *self._amounts(1)),
            lambda: (self.join("brackets", country, self._name("currency")), *self._amounts(1)),
            lambda: (self._relative(), self._name_of("country", 2)),
            lambda: (self._date("long"), self._list(*self._units(2))),
            lambda: (self.join("brackets", self._name("weekday"), self._relative()), self._time()),
            lambda: (self.join("brackets", country, *self._units(1)), self._name_of("language", 2)),
            lambda: (self.listed("or", [self._locale(), country]), self._date("month day")),
        )
        return self.join("dash", *self.rng.choice(shapes)())


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
