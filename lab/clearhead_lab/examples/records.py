"""The records of the worked examples: what each document prints, with the numbers that it starts from."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from torch import Tensor

from clearhead.errors import UserError
from clearhead.json_text import parse
from clearhead_lab.course.claims import Claim

Inputs = dict[str, Any]
Verdict = Literal["reproduces", "rounding", "wrong", "nothing printed", "cannot be checked"]


@dataclass(frozen=True)
class Record:
    """One number, matrix or statement of a document."""

    id: str
    document: str
    section: str
    title: str
    printed: Any
    """Numbers; a statement in words; None where the document leaves the answer out."""
    verdict: Verdict
    """The verdict that the record is known to have."""
    inputs: Inputs = field(default_factory=dict)
    decimals: int | None = None
    """Decimals of the printed numbers; None for exact ones, such as counts and shapes."""
    slack: float = 1.0
    """Units of the last decimal that rounded intermediate steps may cost."""
    lost: str = ""
    """What the document does not give, so that the numbers cannot be checked."""
    cause: str = ""
    """The reason why the printed numbers are wrong."""
    follows: tuple[str, ...] = ()
    """Records whose error this one repeats."""
    claim: Claim | None = None
    """The check of a false statement, and the world in which it would hold."""
    ours: str = ""
    """What is so instead, with the values of the claim's names."""


@cache
def records() -> dict[str, Record]:
    """Every record by id, in the order of the documents."""
    folder = files("clearhead_lab.examples")
    given: Any = parse(folder.joinpath("records.json").read_bytes(), "records.json")
    stated = tomllib.loads(folder.joinpath("statements.toml").read_text(encoding="utf-8"))["statement"]
    found = [Record(**(one | {"follows": tuple(one.get("follows", ()))})) for one in given]
    found += map(_statement, stated)
    return {one.id: one for one in sorted(found, key=lambda one: one.document)}


def _statement(given: Mapping[str, Any]) -> Record:
    """The record of a false statement: what is no field of it is a name of the claim's world."""
    own = {name: given[name] for name in given if name in Record.__dataclass_fields__}
    world = {name: code for name, code in given.items() if name not in {*own, "check", "false"}}
    claim = Claim(says=(), check=given["check"], world=world, false=given["false"])
    return Record(**own | {"verdict": "wrong", "follows": tuple(own.get("follows", ())), "claim": claim})


def chosen(ids: Sequence[str]) -> list[Record]:
    """The records with these ids, or whose ids begin so (`s2` for all of document 002); all of them without ids.

    Raises UserError with the nearest id for one that matches no record.
    """
    known, found = records(), dict[str, Record]()
    for one in ids or [""]:
        matching = {one: known[one]} if one in known else {k: r for k, r in known.items() if k.startswith(one)}
        if not matching:
            nearest = get_close_matches(one, known, n=1)
            remedy = f"try {nearest[0]}" if nearest else "`clearhead lab examples` lists all"
            raise UserError(f"examples: expected the id of a record, got {one!r}; {remedy}")
        found |= matching
    return list(found.values())


def numbers(value: Any) -> Iterator[float]:
    """All numbers inside, in order. Raises TypeError or ValueError for words."""
    match value:
        case Tensor():
            yield from value.detach().flatten().tolist()
        case dict():
            for item in value.values():
                yield from numbers(item)
        case list() | tuple():
            for item in value:
                yield from numbers(item)
        case str():
            raise TypeError(value)
        case _:
            yield float(value)
