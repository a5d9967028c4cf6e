"""A verdict for any config: whether it opens, and what works if it does not. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Final, Literal

from pydantic import JsonValue

from clearhead.checkpoints.families import families, family_named, family_of
from clearhead.checkpoints.families.family import Document, Family, HeadMap
from clearhead.checkpoints.families.pictures_and_sounds.towers import Towers, towers_of
from clearhead.checkpoints.families.unknown import Sign, parts, signs, unknown
from clearhead.config import ModelConfig
from clearhead.errors import UserError

Kind = Literal["opens", "opens but for a head", "does not open"]
OPENS: Final = "opens"
BUT_FOR_A_HEAD: Final = "opens but for a head"
DOES_NOT_OPEN: Final = "does not open"
QUANTIZED: Final = ("quantization_config", "compression_config")
LEVELS: Final = 2
"""How deep networks within networks are judged."""


@dataclass(frozen=True)
class Verdict:
    """What clearhead makes of a config."""

    kind: Kind
    model_type: str | None = None
    architecture: str | None = None
    """The class that opens, or the one that does not."""
    error: str = ""
    """What `load` says; empty if it opens."""
    missing: tuple[Sign, ...] = ()
    """The mechanisms that clearhead does not have, each with a field that says so; or the field that is refused."""
    instead: str = ""
    """The nearest thing that works."""
    not_understood: tuple[str, ...] = ()
    """For an unknown architecture, the fields that no table reads."""
    parts: Mapping[str, "Verdict"] = field(default_factory=dict)
    """The networks within it, by field."""
    config: ModelConfig | None = None
    """The network, if it opens."""
    without: str = ""
    """What its checkpoints hold besides this network, which is left out; empty for nothing."""


def verdict(document: Document, *, where: str, levels: int = LEVELS) -> Verdict:
    """Judges a config of another library. `where` begins the message of a refusal."""
    if (towers := towers_of(document)) is not None:
        return _of_towers(towers, document, where)
    family = family_named(document)
    if family is None:
        return _unknown(document, where, levels)
    try:
        family_of(document, where=where)
    except UserError as error:
        return _quantized(document, where, str(error))
    try:
        head = family.head_of(document, where=where)
    except UserError as error:
        return _without_head(family, document, where, str(error))
    return _read(family, head, document, where)


def _of_towers(towers: Towers, document: Document, where: str) -> Verdict:
    """The verdict of two networks that one config names."""
    asked = _class(document) or towers.architecture
    try:
        towers.check(document, where=where)
    except UserError as error:
        sign, instead = refused(error, document, where), f"{towers.architecture} opens"
        return Verdict(DOES_NOT_OPEN, towers.model_type, asked, str(error), (sign,), instead)
    both = zip(("text_config", "vision_config"), towers.towers(document), strict=True)
    inner = {name: verdict(part, where=f"{where}:{name}") for name, part in both}
    for one in inner.values():
        if one.kind != OPENS:
            return replace(one, kind=DOES_NOT_OPEN, model_type=towers.model_type, architecture=asked, parts=inner)
    return Verdict(OPENS, towers.model_type, asked, parts=inner)


def _quantized(document: Document, where: str, error: str) -> Verdict:
    """The verdict where only the form of the weights is refused: the rest of the config is judged too."""
    rest = verdict({name: value for name, value in document.items() if name not in QUANTIZED}, where=where)
    signs = (Sign("weights in this form", name, document[name]) for name in QUANTIZED if document.get(name) is not None)
    instead = "the checkpoint it was made from" if rest.kind == OPENS else rest.instead
    return replace(rest, kind=DOES_NOT_OPEN, error=error, missing=(*signs, *rest.missing), instead=instead, config=None)


def _read(family: Family, head: HeadMap, document: Document, where: str) -> Verdict:
    """The verdict of the family's own table."""
    try:
        config, _ = family.read(document, where=where)
    except UserError as error:
        sign = refused(error, document, where)
        instead = _otherwise(error, family, sign.field)
        return Verdict(DOES_NOT_OPEN, family.model_type, head.architecture, str(error), (sign,), instead)
    return Verdict(OPENS, family.model_type, head.architecture, config=config, without=family.without)


def _without_head(family: Family, document: Document, where: str, error: str) -> Verdict:
    """The verdict of a class that the family does not have: that of its nearest class."""
    asked = _class(document)
    names = [one.architecture for one in family.heads]
    near = max(names, key=lambda one: SequenceMatcher(None, one, asked or "").ratio())
    body = _read(
        family, family.head_of({"architectures": [near]}, where=where), {**document, "architectures": [near]}, where
    )
    if body.kind != OPENS:
        return body
    rest = f"; so do {', '.join(name for name in names if name != near)}" if len(names) > 1 else ""
    instead = f"{near} opens{rest}: save one with {near}.from_pretrained(NAME).save_pretrained(FOLDER)"
    sign = Sign("this head", "architectures", document.get("architectures"))
    return Verdict(BUT_FOR_A_HEAD, family.model_type, asked, error, (sign,), instead, config=body.config)


def _unknown(document: Document, where: str, levels: int) -> Verdict:
    """The verdict of the fields, for an architecture without a table, and of the networks within it."""
    found = unknown(document, families())
    within = parts(document) if levels > 1 else ()
    inner = {name: verdict(part, where=f"{where}:{name}", levels=levels - 1) for name, part in within}
    return Verdict(
        DOES_NOT_OPEN,
        _text(found.model_type),
        _class(document),
        str(found.error(where)),
        found.missing,
        found.remedy,
        found.not_understood,
        inner,
    )


def refused(error: UserError, document: Document, where: str) -> Sign:
    """The field of a refusal, as a sign of the mechanism that its value asks for."""
    field = error.field.removeprefix(f"{where}:")
    name = field if field in document else ""
    known = [sign.mechanism for sign in signs({name: document.get(name)})] if name else []
    value: JsonValue = document.get(name) if name else None
    return Sign(known[0] if known else "this value", name, value)


def _otherwise(error: UserError, family: Family, field: str) -> str:
    """The alternative to a refused value, as the refusal names it."""
    works = error.refusal.expected if error.refusal else "one of its other values"
    return f"{family.model_type} opens where {field or 'the field'} is {works}"


def _class(document: Document) -> str | None:
    names = document.get("architectures")
    return _text(names[0]) if isinstance(names, list) and names else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
