"""The same answer in other words: what a judge must not mind.

Edits in another order, one edit for all heads or one for each, a place counted from the end, zero as a factor, rounded
numbers, an edit made twice, and edits that change nothing.
"""

from random import Random
from typing import Any

from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.trace import Address
from clearhead_lab.exercises.exercise import Exercise
from clearhead_lab.exercises.passes import Subject

Made = dict[str, Any]
"""One edit as JSON."""
MOST_EDITS = 12
"""The most edits that one becomes."""


class Manners:
    """Writes answers to one exercise down in other manners."""

    def __init__(self, exercise: Exercise, model: Model) -> None:
        self.exercise = exercise
        subject = Subject(model, exercise)
        self.sizes = {one.at: _sizes(subject, one.at) for one in exercise.allows}

    def __call__(self, answer: dict[str, Any], random: Random) -> dict[str, Any]:
        """The answer in a manner that is drawn."""
        if self.exercise.kind != "edits":
            number = answer.get("number")
            is_whole = number is not None and number == int(number)
            return answer | ({"number": int(number)} if is_whole and random.random() < 0.5 else {})
        edits: list[Made] = list(answer["edits"])
        if random.random() < 0.5:
            edits = _rounded(edits, f".{random.randint(3, 5)}g")
        for manner in (self._spread, self._from_the_end, self._other_verb, self._twice, self._spaced):
            if random.random() < 0.3:
                edits = [new for edit in edits for new in manner(edit, random)]
        if random.random() < 0.3 and not answer.get("change"):
            place = random.randint(0, len(edits))
            edits[place:place] = self._idle(random)
        if _commute(edits, self.sizes):
            random.shuffle(edits)
        return answer | {"edits": edits}

    def _does(self, path: str) -> tuple[str, ...]:
        return next((one.do for one in self.exercise.allows if one.at == path), ())

    def _spread(self, edit: Made, random: Random) -> list[Made]:
        """One edit for each place on an axis that the address leaves whole."""
        where = Address.parse(edit["at"])
        sizes = self.sizes[where.path]
        axes = [axis for axis in sizes if axis not in dict(where.index)]
        if isinstance(edit.get("value"), list):
            axes = axes[:-1]
        if not axes or edit["do"] == "mean":
            return [edit]
        axis = random.choice(axes)
        n = sizes[axis]
        if n is None or n > MOST_EDITS:
            return [edit]
        return [edit | {"at": str(Address(where.path, (*where.index, (axis, i))))} for i in range(n)]

    def _from_the_end(self, edit: Made, random: Random) -> list[Made]:
        """A negative index on one axis."""
        where = Address.parse(edit["at"])
        sizes = self.sizes[where.path]
        if not where.index:
            return [edit]
        chosen = random.choice(where.index)[0]
        n = sizes[chosen]
        index = tuple((axis, i - n if axis == chosen and n is not None and i >= 0 else i) for axis, i in where.index)
        return [edit | {"at": str(Address(where.path, index))}]

    def _other_verb(self, edit: Made, random: Random) -> list[Made]:
        """Zero as a factor of 0 or as the number 0, where the exercise allows it."""
        forms: dict[str, Made] = {"zero": {}, "scale": {"value": 0.0}, "set": {"value": 0}}
        if not any(edit == {"at": edit["at"], "do": do, **form} for do, form in forms.items()):
            return [edit]
        do = random.choice([do for do in forms if do in self._does(Address.parse(edit["at"]).path)])
        return [{"at": edit["at"], "do": do, **forms[do]}]

    def _twice(self, edit: Made, random: Random) -> list[Made]:
        """An edit that repeats an earlier one."""
        return [edit, edit] if edit["do"] in ("zero", "set", "close") else [edit]

    def _spaced(self, edit: Made, random: Random) -> list[Made]:
        """The indices of an address in another order, with spaces."""
        where = Address.parse(edit["at"])
        index = random.sample(where.index, len(where.index))
        inside = ", ".join(f"{axis} = {i}" for axis, i in index)
        return [edit | {"at": f"{where.path}[{inside}]" if inside else f" {where.path}"}]

    def _idle(self, random: Random) -> list[Made]:
        """An edit that changes nothing: a factor of 1."""
        paths = [one.at for one in self.exercise.allows if "scale" in one.do]
        return [{"at": random.choice(paths), "do": "scale", "value": 1}] if paths else []


def _rounded(edits: list[Made], form: str) -> list[Made]:
    """Numbers of some digits."""

    def written(value: float | list[float]) -> float | list[float]:
        return [float(format(x, form)) for x in value] if isinstance(value, list) else float(format(value, form))

    return [edit | {"value": written(edit["value"])} if "value" in edit else edit for edit in edits]


def _sizes(subject: Subject, path: str) -> dict[str, int | None]:
    """How many places each axis of a value has; None where inputs differ."""
    found: dict[str, int | None] = {}
    for read in subject.plain.values():
        try:
            axes, shape = read.seen.axes[path].split()[1:], read.value(path).shape
        except (KeyError, UserError):
            return {}
        for axis, n in zip(axes, shape, strict=True):
            found[axis] = n if found.get(axis, n) == n else None
    return found


def _commute(edits: list[Made], sizes: dict[str, dict[str, int | None]]) -> bool:
    """Whether no cell is edited twice."""
    places = [(where.path, dict(where.index)) for where in (Address.parse(edit["at"]) for edit in edits)]

    def are_apart(one: tuple[str, dict[str, int]], other: tuple[str, dict[str, int]]) -> bool:
        if one[0] != other[0]:
            return True
        return any(
            n is not None and axis in one[1] and axis in other[1] and (one[1][axis] - other[1][axis]) % n != 0
            for axis, n in sizes[one[0]].items()
        )

    return all(are_apart(one, other) for i, one in enumerate(places) for other in places[:i])
