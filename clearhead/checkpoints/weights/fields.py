"""Maps config fields between another library ("theirs") and this one ("ours"), both ways. Imports no torch.

A field that changes a number in the other library must be mapped, ignored by name, or at its one supported value. Other
values raise UserError. Fields that change no number there have no effect here either, and `unknown` lists them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from pydantic import JsonValue

from clearhead.checkpoints.weights.documents import short, shown
from clearhead.errors import UserError, refuse

Values = Mapping[str, Any]
"""The fields of their config, absent ones at their defaults."""


class _Required:
    """Marks a field without a default, which must be present."""


REQUIRED: Final = _Required()


@dataclass(frozen=True)
class Field:
    """A field of theirs, and the fields of ours that it sets: dotted paths, such as decoder.d_model."""

    theirs: str
    ours: tuple[str, ...]
    default: JsonValue | _Required
    read: Callable[[Any, Values], Any]
    """Their value and all their values -> our value."""
    write: Callable[[Any, Values], Any]
    """Our value and our config as nested tables -> their value."""
    extra: bool = False
    """Whether the other library does not know the field. It is then written only if it differs from its default."""
    like: JsonValue | _Required = REQUIRED
    """An example of the required kind of their value: a whole number, a number, true or false, text or a table."""
    null: bool = True
    """Whether null is a value of theirs. If not, it raises UserError, as it does there."""


@dataclass(frozen=True)
class Only:
    """A field of a mechanism that this library does not have: absent, null or this value."""

    theirs: str
    value: JsonValue


@dataclass(frozen=True)
class Alias:
    """Another name of theirs for a field. If both are given, they must agree."""

    theirs: str
    of: str


@dataclass(frozen=True)
class Ignored:
    """Fields (or patterns, such as `output_*`) that change no number that the network computes."""

    theirs: tuple[str, ...]


FieldRule = Field | Only | Alias | Ignored
FieldRules = tuple[FieldRule, ...]

KINDS: Final = {bool: "true or false", int: "a whole number", float: "a number", str: "text", dict: "a table"}
ANOTHER = "try the config.json it was saved with"


def _as_it_is(value: Any, _: Values) -> Any:
    return value


def same(theirs: str, *ours: str, default: JsonValue | _Required = REQUIRED) -> Field:
    """A field with the same value on both sides."""
    return computed(theirs, *ours, default=default)


def extra(theirs: str, *ours: str, default: JsonValue) -> Field:
    """A field that the other library does not have. Its configs correspond to the default."""
    return replace(same(theirs, *ours, default=default), extra=True)


def inherited(theirs: str, *ours: str, of: str, default: JsonValue) -> Field:
    """The same value on both sides, except that where our stack leaves it unset, the stack's field `of` counts."""
    stack = ours[0].partition(".")[0]

    def write(value: Any, config: Values) -> Any:
        return config[stack][of] if value is None else value

    return computed(theirs, *ours, write=write, default=default)


def implied(theirs: str, value: Callable[[Values], Any], *, write: Callable[[Values], Any], what: str) -> Field:
    """A field that sets nothing: absent, null, or the value that follows from their other fields.

    `write` computes it from our config, and `what` describes it in messages.
    """

    def read(said: Any, values: Values) -> None:
        expected = value(values)
        if said not in (None, expected):
            raise refuse("", f"{short(expected)}, {what}", short(said))

    return computed(theirs, read=read, write=lambda _, config: write(config), default=None)


def equal(theirs: str, other: str, ours: str) -> Field:
    """A field that sets nothing and must equal their field `other`, which is `ours`."""
    return implied(
        theirs, lambda values: values[other], write=lambda config: get(config, ours), what=f"which is {other}"
    )


def named(theirs: str, *ours: str, names: Mapping[str, JsonValue], default: JsonValue | _Required = REQUIRED) -> Field:
    """A field whose names stand for our values. Of several names for one value, the first is written."""
    back = {value: name for name, value in reversed(list(names.items()))}

    def read(value: Any, _: Values) -> JsonValue:
        if value not in names:
            raise refuse("", " or ".join(names), short(value))
        return names[value]

    return Field(theirs, ours, default, read, lambda value, _: back[value], like="", null=False)


def computed(
    theirs: str,
    *ours: str,
    read: Callable[[Any, Values], Any] = _as_it_is,
    write: Callable[[Any, Values], Any] = _as_it_is,
    default: JsonValue | _Required = REQUIRED,
    like: JsonValue | _Required = REQUIRED,
    null: bool | None = None,
) -> Field:
    """A field whose value is converted, if only in one direction. Both functions get the whole config of their side.

    `like` is an example of the required kind, by default the default, and None if there are several kinds. `null` is
    whether null is a value, by default whether it is the default.
    """
    like = default if isinstance(like, _Required) else like
    return Field(theirs, ours, default, read, write, like=like, null=default is None if null is None else null)


def factor(theirs: str, *ours: str, default: float = 1.0, inverse: bool = False) -> Field:
    """A factor, or with `inverse` a divisor. Theirs is 1 where ours is None."""

    def turned(value: float) -> float:
        return 1 / value if inverse else float(value)

    return computed(
        theirs,
        *ours,
        read=lambda value, _: None if value == 1.0 else turned(value),
        write=lambda value, _: 1.0 if value is None else turned(value),
        default=default,
        like=1.0,
    )


def only(**values: JsonValue) -> tuple[Only, ...]:
    """The one supported value of each field that sets a mechanism which this library does not have."""
    return tuple(Only(theirs, value) for theirs, value in values.items())


def ignored(*theirs: str) -> Ignored:
    """Fields that do not change what the network computes."""
    return Ignored(theirs)


@dataclass(frozen=True)
class Decision:
    """The effect of one field of a config."""

    field: str
    value: JsonValue
    sets: tuple[str, ...]
    """The settings that the field changed; empty if it is ignored by name or has its one supported value."""
    note: str


@dataclass(frozen=True)
class FieldMap:
    """The entries of one architecture."""

    entries: FieldRules

    def values(self, document: Values, *, where: str) -> dict[str, Any]:
        """The document with defaults for absent fields. Raises UserError for a missing or unsupported field."""
        document, values = self._renamed(document, where), dict[str, Any]()
        for entry in self.fields():
            if entry.theirs in document:
                values[entry.theirs] = _alike(document[entry.theirs], entry, where)
            elif isinstance(entry.default, _Required):
                raise refuse(f"{where}:{entry.theirs}", "this field", "none", "try the complete file")
            else:
                values[entry.theirs] = entry.default
        for entry in self.entries:
            if isinstance(entry, Only) and entry.theirs not in values:
                value = document.get(entry.theirs)
                if value is not None and value != entry.value:
                    expected = f"{entry.value!r}, the only value that is supported"
                    raise refuse(f"{where}:{entry.theirs}", expected, short(value), ANOTHER)
        return values

    def _renamed(self, document: Values, where: str) -> Values:
        """The document with every field under its first name."""
        for entry in self.entries:
            if isinstance(entry, Alias) and entry.theirs in document:
                value = document[entry.theirs]
                if document.get(entry.of, value) != value:
                    expected = f"{entry.of}={short(document[entry.of])}, of which it is another name"
                    raise refuse(f"{where}:{entry.theirs}", expected, short(value), ANOTHER)
                document = {name: said for name, said in document.items() if name != entry.theirs} | {entry.of: value}
        return document

    def unknown(self, names: Iterable[str]) -> list[str]:
        """The names without an entry, sorted."""
        known = {entry.theirs for entry in self.entries if not isinstance(entry, Ignored)}
        patterns = [name for entry in self.entries if isinstance(entry, Ignored) for name in entry.theirs]
        return sorted(
            name for name in names if name not in known and not any(fnmatchcase(name, pattern) for pattern in patterns)
        )

    def read(self, document: Values, *, where: str) -> dict[str, Any]:
        """Their config -> ours, as nested tables."""
        values = self.values(document, where=where)
        ours: dict[str, Any] = {}
        for field in self.fields():
            value = _guarded(field, values, where)
            for path in field.ours:
                put(ours, path, value)
        return ours

    def write(self, ours: Values) -> dict[str, Any] | None:
        """Our config, as nested tables -> theirs; None if theirs cannot express it."""
        theirs: dict[str, Any] = {}
        for field in self.fields():
            try:
                value = field.write(get(ours, field.ours[0]) if field.ours else None, ours)
            except (KeyError, TypeError, ValueError, AttributeError):
                return None
            if not (field.extra and value == field.default):
                theirs[field.theirs] = value
        return theirs

    def decisions(self, document: Values, *, where: str, unread: str) -> Iterator[Decision]:
        """The effect of each field of a config, including those at their defaults; `unread` if it has no entry."""
        values = self.values(document, where=where)
        for field in self.fields():
            note = "" if field.theirs in document else "absent: the default"
            yield Decision(field.theirs, values[field.theirs], field.ours, note)
        notes = dict.fromkeys(self.unknown(document), unread)
        for entry in self.entries:
            if isinstance(entry, Only):
                notes[entry.theirs] = "the one supported value"
            elif isinstance(entry, Alias):
                notes[entry.theirs] = f"another name of {entry.of}"
        for name in sorted(document.keys() - values.keys()):
            yield Decision(name, document[name], (), notes.get(name, "changes no number"))

    def fields(self) -> Iterator[Field]:
        """The entries that set a field."""
        return (entry for entry in self.entries if isinstance(entry, Field))

    def field_of(self, path: Sequence[str]) -> str | None:
        """Their field that set this path of ours, or the nearest path above it."""

        def within(ours: str) -> bool:
            # The path of a value of several kinds also names the kind: encoder.positions.sinusoidal.layout.
            left = iter(path)
            return all(name in left for name in ours.split("."))

        found = [(ours.count("."), field.theirs) for field in self.fields() for ours in field.ours if within(ours)]
        return max(found, key=lambda pair: pair[0])[1] if found else None

    def translated(self, message: str, path: Sequence[str], values: Values) -> str:
        """A message about this path of ours with `field=value` in their names, where their field has this value."""
        ours = [(ours, field.theirs) for field in self.fields() for ours in field.ours if ours.split(".")[0] in path]
        names = {ours.rpartition(".")[2]: theirs for ours, theirs in sorted(ours, key=lambda pair: -pair[0].count("."))}

        def named(match: re.Match[str]) -> str:
            theirs = names.get(match[1])
            is_same = theirs is not None and str(values[theirs]) == match[2]
            return f"{theirs if is_same else words.get(match[1], match[1])}={match[2]}"

        has_width = "d_head" in names
        words = {"d_head": "head width" if has_width else f"{names.get('d_model')} / {names.get('n_heads')}"}
        advice = f"; or give {names['d_head']}" if has_width else ""
        return re.sub(r"([a-z_]+)=([\w.]+)", named, message.replace("; or give d_head", advice))


def _guarded(field: Field, values: Values, where: str) -> Any:
    """Our value of the field. Raises UserError, in one line, for a value that breaks the conversion."""
    value, place = values[field.theirs], f"{where}:{field.theirs}"
    try:
        ours = field.read(value, values)
        if isinstance(ours, complex):
            raise ValueError("a root of a negative number")
        return ours
    except UserError as error:
        if (known := error.refusal) is None:
            raise UserError(f"{place}: {shown(str(error))}; {ANOTHER}", field=place) from None
        raise refuse(place, shown(known.expected), shown(known.got), known.remedy or ANOTHER) from None
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, IndexError) as error:
        got = f"{short(value)} ({shown(str(error))})"
        raise refuse(place, "another kind of value", got, ANOTHER) from None


def _alike(value: Any, field: Field, where: str) -> Any:
    """The value. Raises UserError if it is not of the field's kind."""
    kind = type(field.like)
    if value is None and field.null:
        return None
    if kind in KINDS and type(value) is not kind and not (kind is float and type(value) is int):
        raise refuse(f"{where}:{field.theirs}", KINDS[kind], short(value), ANOTHER)
    return value


def put(table: dict[str, Any], path: str, value: object) -> None:
    """Sets table[a][b][c] = value for the path a.b.c, and creates missing tables."""
    *above, last = path.split(".")
    for name in above:
        table = table.setdefault(name, {})
    table[last] = value


def get(table: Values, path: str) -> Any:
    """table[a][b][c] for the path a.b.c. Raises KeyError or TypeError if there is no such entry."""
    value: Any = table
    for name in path.split("."):
        value = value[name]
    return value
