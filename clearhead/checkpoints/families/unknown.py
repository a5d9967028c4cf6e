"""The mechanisms of an architecture without a table, and the nearest one that opens. Imports no torch."""

import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files

from pydantic import JsonValue

from clearhead.checkpoints.families.family import COMMON, Document, Family
from clearhead.checkpoints.weights.documents import short, shown
from clearhead.checkpoints.weights.fields import FieldMap
from clearhead.errors import UserError

# --- mechanisms by the config fields that name them ----------------------------------------------------------------

LONGEST = 40
"""Characters of a name or value in a message that lists several."""


@dataclass(frozen=True)
class Mechanism:
    """A part of a network, and the config fields that each show that a network has it."""

    name: str
    fields: tuple[str, ...]
    words: tuple[str, ...] = ()
    """If given, the field's text, or an item of its list, must contain one of these. Else every set value counts."""
    above: float = 0
    """A number says so only above this one."""


@dataclass(frozen=True)
class Sign:
    """A field of a config that says which mechanism the network has."""

    mechanism: str
    field: str
    value: JsonValue

    def __str__(self) -> str:
        return f"{self.mechanism} ({cut(self.field)}={_shortest(self.value)})"


_TABLES = tomllib.loads(files("clearhead.checkpoints.families").joinpath("mechanisms.toml").read_text(encoding="utf-8"))
MECHANISMS: tuple[Mechanism, ...] = tuple(
    Mechanism(table["name"], tuple(table["fields"]), tuple(table.get("words", ())), table.get("above", 0))
    for table in _TABLES["mechanism"]
)
"""Mechanisms by the config fields that name them."""


def signs(document: Document) -> list[Sign]:
    """Each mechanism that the fields of a config name, once, with the field that says so."""
    found: dict[str, Sign] = {}
    for mechanism in MECHANISMS:
        for name in mechanism.fields:
            if mechanism.name not in found and _says(document.get(name), mechanism):
                found[mechanism.name] = Sign(mechanism.name, name, document[name])
    return list(found.values())


def fields_of(name: str) -> frozenset[str]:
    """The fields that name this mechanism if they are set to any value."""
    return frozenset(field for one in MECHANISMS if one.name == name and not one.words for field in one.fields)


def parts(document: Document) -> Iterator[tuple[str, Document]]:
    """The configs of the networks within a network, by field."""
    for name, value in document.items():
        if isinstance(value, dict) and isinstance(value.get("model_type"), str) and value["model_type"]:
            yield name, value


def _says(value: object, mechanism: Mechanism) -> bool:
    if mechanism.words:
        texts = value if isinstance(value, list) else [value]
        return any(isinstance(text, str) and word in text for text in texts[:256] for word in mechanism.words)
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value > mechanism.above
    return bool(value)


def _shortest(value: JsonValue) -> str:
    """A value for a message: tables and long lists only by their size."""
    if isinstance(value, Mapping):
        return "{…}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        kinds = list(dict.fromkeys(map(str, value[:256])))
        return cut(kinds[0]) if len(kinds) == 1 else f"{len(value)} values"
    return cut(repr(value))


def cut(text: str) -> str:
    """A name or value of a config for a message that lists several."""
    plain = shown(text)
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 1]}…"


# --- architectures without a table ---------------------------------------------------------------------------------

NEAR = 5
"""At least so many fields must be those of a family for it to be near."""
CANDIDATES = 6
"""So many families with the most fields in common are looked at."""
SHOWN = 6
"""At most so many fields are listed in a message."""
UNKNOWN = "which has no table here"
_COMMON = FieldMap(COMMON)


@dataclass(frozen=True)
class Unknown:
    """An architecture that no family reads."""

    model_type: object
    """What its config says, if it says anything."""
    missing: tuple[Sign, ...]
    """Its mechanisms that no family here has."""
    here: tuple[tuple[Sign, tuple[str, ...]], ...]
    """Its mechanisms that families here have, and which."""
    nearest: str | None
    """The family that reads most of its fields."""
    not_understood: tuple[str, ...]
    """The fields that the nearest family does not know, besides those of its mechanisms."""
    opens: Mapping[str, str] = field(default_factory=dict)
    """The networks within it that open by themselves, by field, with their model type."""

    @property
    def reason(self) -> str:
        """Why it does not open."""
        if self.missing:
            return f"which needs {', '.join(map(str, self.missing[:3]))}, which clearhead does not have"
        had = "; ".join(f"{sign} is that of {', '.join(names[:2])}" for sign, names in self.here[:2])
        fields = listed(self.not_understood)
        if had:
            return f"which has no table here, though its {had}"
        if fields:
            return f"whose fields {fields} no table here reads"
        return (
            f"which has no table here, although that of {self.nearest} has all its fields" if self.nearest else UNKNOWN
        )

    @property
    def remedy(self) -> str:
        """The nearest thing that works."""
        if self.opens:
            names = ", ".join(f"{cut(name)} ({kind})" for name, kind in [*self.opens.items()][:SHOWN])
            return f"its {names} opens, once its own library has saved that network alone"
        if self.nearest is None:
            return "nothing near it opens"
        if self.model_type is None and not (self.missing or self.here or self.not_understood):
            return f'all its fields are those of {self.nearest}; if it is one, try "model_type": "{self.nearest}"'
        return f"the nearest that opens is {self.nearest}; try a model of that type"

    def error(self, where: str) -> UserError:
        """What `load` says."""
        got = f"expected an architecture that clearhead opens, got {short(self.model_type)}"
        return UserError(f"{where}:model_type: {got}, {self.reason}; {self.remedy}")


def unknown(document: Document, families: Sequence[Family]) -> Unknown:
    """Looks at the fields of a config whose model type no family has."""
    sets = [{entry.theirs for entry in family.map_of(family.heads[0]).fields()} for family in families]
    found = signs(document)
    had = [(sign, fields_of(sign.mechanism)) for sign in found]
    here = [(sign, _having(names, families, sets)) for sign, names in had]
    nearest = _nearest(document, families, sets)
    named = {sign.field for sign in found}.union(*(names for _, names in had))
    left = _COMMON.unknown(document) if nearest is None else _unread(nearest, document)
    return Unknown(
        model_type=document.get("model_type"),
        missing=tuple(sign for sign, names in here if not names),
        here=tuple((sign, names) for sign, names in here if names),
        nearest=None if nearest is None else nearest.model_type,
        not_understood=tuple(name for name in left if name not in named),
        opens={name: kind for name, part in parts(document) if (kind := _opening(part, families))},
    )


def listed(names: Collection[str], *, whole: bool = False) -> str:
    """The first names of many, as one line; long ones are cut unless `whole`."""
    some = ", ".join(name if whole else cut(name) for name in list(names)[:SHOWN])
    return f"{some} and {len(names) - SHOWN} more" if len(names) > SHOWN else some


def _having(names: Collection[str], families: Sequence[Family], sets: Sequence[set[str]]) -> tuple[str, ...]:
    """The families that set something by one of these fields."""
    return tuple(family.model_type for family, own in zip(families, sets, strict=True) if own.intersection(names))


def _nearest(document: Document, families: Sequence[Family], sets: Sequence[set[str]]) -> Family | None:
    """The family that uses the most fields of a config. Fields that it does not know count against it.

    A config with a vocabulary is that of a family that reads texts.
    """
    fits = ["encoder.input.kind" not in family.constants or "vocab_size" not in document for family in families]
    counts = [len(own & document.keys()) if fit else 0 for own, fit in zip(sets, fits, strict=True)]
    order = sorted(range(len(families)), key=lambda i: -counts[i])
    near = [i for i in order[:CANDIDATES] if counts[i] >= NEAR]
    scores = {i: counts[i] - 0.5 * len(_unread(families[i], document)) for i in near}
    best = max(near, key=lambda i: scores[i], default=None)
    return families[best] if best is not None and scores[best] > 0 else None


def _unread(family: Family, document: Document) -> list[str]:
    """The fields that a family's table does not know."""
    with suppress(UserError):
        document = family.modernize(dict(document))
    return family.map_of(family.heads[0]).unknown(document)


def _opening(document: Document, families: Sequence[Family]) -> str | None:
    """The model type of a config that one of the families opens, with the first of its classes."""
    for family in families:
        if family.model_type == document["model_type"]:
            try:
                family.read({**document, "architectures": [family.heads[0].architecture]}, where="")
            except UserError:
                return None
            return family.model_type
    return None
