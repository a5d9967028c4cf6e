"""What the name and the cells of a column show: texts, labels, ids, dates, addresses, numbers. Imports no torch."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from clearhead.config.heads import ProblemType
from clearhead.data.tables import MISSING, alone, number_of, parts_of, written
from clearhead.recipe.data import Column

TEXTS: set[str] = {
    *"text body sentence content review comment tweet message msg question utterance document description".split(),
    *"article post narrative phrase query email sms statement passage paragraph quote abstract response".split(),
    *"premise hypothesis claim context transcript headline title string sequence smiles v2".split(),
}
TITLES = {"title", "headline", "subject", "summary", "heading"}
CERTAIN = {"label", "class", "target", "goldlabel", "y"}
LABELS: set[str] = CERTAIN | {
    *"category intent sentiment star rating score topic polarity emotion genre tag type stance judgment".split(),
    *"relation relatedness similarity entailment duplicate quality grade group v1 spam overall".split(),
}
IDS = {"id", "ids", "idx", "index", "uuid", "guid", "key", "hash", "unnamed", "qid"}
TIMES = {"date", "time", "timestamp", "datetime", "timezone", "year", "created", "updated"}
SPLITS = {"train", "training", "dev", "valid", "validation", "val", "test"}
URL = re.compile(r"(https?://|www\.)\S+")
DATE = re.compile(
    r"(\w{3,9},? )?(\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\b"
    r"|\d{0,2}[ -]?(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[ -]\d).{0,30}",
    re.IGNORECASE,
)
LISTED = re.compile(r"\[.*\]|\{.*\}", re.DOTALL)
"""A list or an object, as Python or JSON writes it."""
CODE = re.compile(r"[^\s.]*\d[^\s.]*")
"""A word with a digit, which is no decimal number."""
FEW = 20
"""So many labels a named column may have, however few its rows. More whole numbers than that are measured."""
MOST_CODES = 100
"""Numbers in lists are labels up to this many of them. Beyond it, they are places in a text."""
SHORT = 50
"""Most characters of a label, in the mean."""


@dataclass(frozen=True)
class Target:
    """What the values of a column are as labels."""

    problem: ProblemType
    labels: list[str]
    """The most frequent first; the numbers of a regression in order."""
    settings: dict[str, str] = field(default_factory=dict)
    """Fields of the recipe's `data` that reading them needs."""

    @property
    def about(self) -> str:
        """What they are, in a few words."""
        n, some = len(self.labels), ", ".join(label[:24] for label in self.labels[:3]) + ", …" * (len(self.labels) > 3)
        match self.problem:
            case "regression":
                return f"numbers from {self.labels[0]} to {self.labels[-1]}"
            case "multi_label_classification":
                return f"any number of {n} labels ({some})"
            case _:
                return f"{n} classes ({some}){self._alike}"

    @property
    def _alike(self) -> str:
        """The first two labels that differ only in case, or as 1 and 1.0 do; empty if there are none."""
        known = dict[str | float, str]()
        for label in self.labels:
            number = number_of(label)
            other = known.setdefault(label.casefold() if number is None else number, label)
            if other != label:
                return f"; {other} and {label} count as two"
        return ""


@dataclass(frozen=True, eq=False)
class Profile:
    """A column, and what its cells in the sample show."""

    name: Column
    cells: Sequence[object]

    @cached_property
    def words(self) -> list[str]:
        """The words of its name in lower case."""
        spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(self.name))
        return re.findall(r"[^\W\d_]+|\d+", spaced.lower()) if isinstance(self.name, str) else []

    @cached_property
    def plain(self) -> str:
        """Its name without case and punctuation."""
        return "".join(self.words)

    @cached_property
    def values(self) -> list[str]:
        """The cells that are not missing, as text."""
        return [text for cell in self.cells if (text := written(cell)).lower() not in MISSING]

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each value occurs."""
        return Counter(self.values)

    @cached_property
    def length(self) -> float:
        """Mean number of characters of a row."""
        return sum(map(len, self.values)) / max(len(self.cells), 1)

    @cached_property
    def example(self) -> str:
        """The first cell that is not missing."""
        return next(iter(self.values), "")

    @cached_property
    def is_flag(self) -> bool:
        """Returns True if the cells are 0 and 1, or true and false."""
        return bool(self.counts) and {*map(str.lower, self.counts)} <= {"0", "1", "true", "false"}

    @cached_property
    def is_measure(self) -> bool:
        """Returns True if the cells are numbers, and not all of them whole."""
        return self.kind == "numbers" and not all(float(value).is_integer() for value in self.counts)

    @cached_property
    def kind(self) -> str:
        """What the cells hold: "lists", "objects", "numbers" or "words"; or, in words, why they are no label."""
        values, n = self.values, len(self.values)
        types = {type(alone(cell)) for cell in self.cells}
        if n * 20 < len(self.cells) or not n:
            return "nearly empty"
        if list in types or dict in types:
            return "lists" if list in types else "objects"
        if len(self.counts) == 1 and len(self.cells) > 1:
            return "one value"
        if {value.lower() for value in self.counts} <= SPLITS:
            return "names of splits"
        if self._most(URL):
            return "addresses"
        if self._most(DATE) or (TIMES & {*self.words} and not self.text_rank):
            return "times"
        is_code = n > FEW and len(self.counts) == n and all(map(CODE.fullmatch, values))
        if IDS & {*self.words[-1:]} or (not self.text_rank and (is_code or IDS & {*self.words})):
            return "ids"
        return "numbers" if all(number_of(value) is not None for value in self.counts) else "words"

    def _most(self, form: re.Pattern[str]) -> bool:
        return sum(form.fullmatch(value) is not None for value in self.values) > 0.9 * len(self.values)

    @cached_property
    def text_rank(self) -> int:
        """How surely its name is that of texts: 3 to 0."""
        if self.plain == "text":
            return 4
        if any(word.removesuffix("s") in TITLES for word in (self.plain, *self.words[-1:])):
            return 1
        return _rank(self, TEXTS)

    @cached_property
    def label_rank(self) -> int:
        """How surely its name is that of labels: 4 to 0."""
        return 4 if {self.plain, self.plain.removesuffix("s")} & CERTAIN else _rank(self, LABELS)

    @cached_property
    def is_text(self) -> bool:
        """Returns True if the cells may be texts."""
        if self.kind != "words" or self._most(LISTED):
            return False
        is_few = len(self.counts) <= (3 if self.text_rank else FEW) and 2 * len(self.counts) <= len(self.values)
        return self.length > SHORT or (not is_few and (self.text_rank > 1 or self.target is None))

    @cached_property
    def target(self) -> Target | None:
        """What the cells are as labels; None if they are not."""
        if self.kind not in ("lists", "numbers", "words") or 2 * len(self.values) < len(self.cells):
            return None
        target = self.target_if_given()
        n, k = sum(self.counts.values()), len(target.labels)
        if target.problem == "regression":
            return target if self.is_measure or self.label_rank else None
        if target.problem == "multi_label_classification":
            is_worded = any(number_of(label) is None for label in target.labels)
            if self.kind != "lists":
                return target if is_worded or k <= MOST_CODES else None
            parts = [part for cell in self.cells if isinstance(cell, list) for part in cell]
            is_nested = any(type(part) in (list, dict) for part in parts)
            return target if (self.label_rank or is_worded) and not is_nested and 0 < 2 * k <= len(parts) else None
        most = max(FEW, n // 2) if self.label_rank > 2 else max(2, n // (2 if self.label_rank else 5))
        return target if 2 <= k <= most and (self.length <= SHORT or self.label_rank > 2) else None

    def target_if_given(self) -> Target:
        """What the cells are as labels, though nothing shows that they are."""
        if self.kind == "lists":
            parts = Counter(part for cell in self.cells if isinstance(cell, list) for part in parts_of(cell))
            return Target("multi_label_classification", _by_count(parts))
        numbers = [number for value in self.counts if (number := number_of(value)) is not None]
        if numbers and len(numbers) == len(self.counts):
            return self._numeric(sorted(numbers))
        for separator in "|;,":
            if target := self._divided(separator):
                return target
        names = [value for value in _by_count(self.counts) if value != "-"]
        is_none = 0 < 10 * self.counts["-"] < len(self.values) and all(len(name) > 2 for name in names)
        if is_none:
            return Target("single_label_classification", names, {"no_label": "-"})
        return Target("single_label_classification", _by_count(self.counts))

    def _numeric(self, numbers: list[float]) -> Target:
        """Whole numbers are classes if they are few, or codes from 0 or 1 without a gap."""
        is_whole = all(number.is_integer() for number in numbers)
        is_coded = len(numbers) == numbers[-1] - numbers[0] + 1 and numbers[0] in (0, 1)
        recurs = 2 * len(numbers) <= len(self.values)
        if is_whole and (len(numbers) <= FEW or (is_coded and recurs)):
            return Target("single_label_classification", _by_count(self.counts))
        return Target("regression", [f"{number:g}" if is_whole else str(number) for number in numbers])

    def _divided(self, separator: str) -> Target | None:
        """Several labels in a cell: parts recur in several combinations."""
        cells = [parts_of(value, separator) for value in self.values]
        parts = Counter(part for cell in cells for part in cell)
        several = sum(len(cell) > 1 for cell in cells)
        is_short = max(map(len, parts), default=0) <= SHORT
        is_many = 2 * len(parts) > parts.total() or len(parts) >= len(self.counts)
        if several * 50 < len(cells) or not is_short or "" in parts or is_many:
            return None
        is_listed = self._most(LISTED)
        return Target("multi_label_classification", _by_count(parts), {} if is_listed else {"separator": separator})


def _rank(profile: Profile, names: set[str]) -> int:
    """3 if a column has one of these names, apart from digits; 2 if its last word is one; 1 if another is."""
    words = [word for word in profile.words if len(word) > 1 and not word.isdecimal()]
    singular = [word if word in names else word.removesuffix("s") for word in words]
    whole = {profile.plain, "".join(words), "".join(words).removesuffix("s")}
    return 3 if whole & names else 2 if {*singular[-1:]} & names else int(bool({*singular} & names))


def _by_count(counts: Counter[str]) -> list[str]:
    return [value for value, _ in counts.most_common()]
