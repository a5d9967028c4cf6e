"""`clearhead check` of a config alone: whether it opens, which mechanism is missing, and what works instead."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from clearhead.api import CONFIG, read_config
from clearhead.checkpoints.families import family_of
from clearhead.checkpoints.families.unknown import listed
from clearhead.checkpoints.families.verdicts import DOES_NOT_OPEN, OPENS, Verdict, verdict
from clearhead.checkpoints.weights.documents import (
    ADAPTER,
    CONFIG_LIMIT,
    INDEX,
    MODEL,
    read_json,
    refuse_other_form,
    shown,
)
from clearhead.checkpoints.weights.fields import ANOTHER, Decision
from clearhead.checkpoints.weights.hub import fetched_config, local_folder
from clearhead.checkpoints.weights.legacy import BIN, BIN_INDEX
from clearhead.checkpoints.weights.modules import network_folder
from clearhead.cli.options import tell
from clearhead.config import ModelConfig
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.model.meta import unallocated


@dataclass(frozen=True)
class Judged:
    """The verdict on a config, and how its table reads each field."""

    verdict: Verdict
    parameters: int | None
    """The number of parameters; None if the model does not open."""
    decisions: tuple[Decision, ...]


def judge(name: str, revision: str | None) -> Judged | None:
    """Judges a config that is refused, or that has no weights beside it. None for a model that can be compared."""
    file, has_weights = _place(name, revision)
    if file is None:
        return None
    document = read_json(file, limit=CONFIG_LIMIT)
    if "clearhead" in document:
        return None if has_weights else _own(document, str(file))
    found = judged(document, where=str(file))
    return None if has_weights and found.verdict.config is not None and found.verdict.kind == OPENS else found


def judged(document: JsonObject, *, where: str) -> Judged:
    """The verdict of a config of another library, with the number of parameters from a network without memory."""
    found = verdict(document, where=where)
    if found.config is None:
        return Judged(found, None, ())
    try:
        parameters = counted(found.config)
    except (RuntimeError, ValueError, TypeError, ArithmeticError) as error:
        what = f"{where}: expected sizes that tensors can have, got {type(error).__name__}; {ANOTHER}"
        return Judged(
            Verdict(DOES_NOT_OPEN, found.model_type, found.architecture, what, instead="smaller sizes"), None, ()
        )
    if found.kind != OPENS:
        return Judged(found, parameters, ())
    return Judged(found, parameters, tuple(family_of(document, where=where).decisions(document, where=where)))


def counted(config: ModelConfig) -> int:
    """The number of parameters of a network, without memory for them."""
    return unallocated(config).n_parameters


def show(found: Judged, *, as_json: bool) -> None:
    """Prints a verdict. Raises UserError, as `load` does, unless the config opens."""
    if as_json:
        print(json.dumps(to_json(found)))
    else:
        print("\n".join(lines(found)))
    if found.verdict.kind != OPENS:
        raise UserError(found.verdict.error)
    if found.verdict.config is None:
        tell("note: clearhead.load_towers opens both networks; save one of them to compare it with the reference")
    else:
        tell("note: no weights here, so nothing is compared with the reference")


def lines(found: Judged) -> Iterator[str]:
    """The verdict for people."""
    one = found.verdict
    named = ", ".join(shown(name) for name in (one.model_type, one.architecture) if name)
    size = "" if found.parameters is None else f", {found.parameters:,} parameters"
    yield f"{one.kind}: {named or 'a config without a model_type'}{size}"
    if one.without:
        yield f"  left out: {one.without}"
    for sign in one.missing:
        yield f"  missing: {sign}" if sign.field else f"  refused: {one.error}"
    if one.not_understood:
        yield f"  fields that no table reads: {listed(one.not_understood)}"
    for name, part in one.parts.items():
        yield f"  {shown(name)} ({shown(part.model_type or '')}): {part.kind}"
    if one.instead:
        yield f"  instead: {one.instead}"
    yield from fields(found.decisions)


def fields(decisions: tuple[Decision, ...]) -> Iterator[str]:
    """What each field of a config decided."""
    if not decisions:
        return
    yield ""
    yield "What each field of config.json decided:"
    width = max(len(shown(one.field)) for one in decisions)
    for one in decisions:
        effect = f"{', '.join(one.sets) or one.note}{f' ({one.note})' if one.sets and one.note else ''}"
        value = json.dumps(one.value)
        yield f"  {shown(one.field):<{width}}  {value if len(value) <= 24 else value[:21] + '...':<24}  {effect}"


def to_json(found: Judged) -> JsonObject:
    """The verdict for programs."""
    decisions: list[Any] = [asdict(one) for one in found.decisions]
    return {**_told(found.verdict), "parameters": found.parameters, "fields": decisions}


def _told(one: Verdict) -> JsonObject:
    missing: list[JsonValue] = [
        {"mechanism": sign.mechanism, "field": sign.field, "value": sign.value} for sign in one.missing
    ]
    return {
        "verdict": one.kind,
        "model_type": one.model_type,
        "architecture": one.architecture,
        "error": one.error,
        "missing": missing,
        "instead": one.instead,
        "left_out": one.without,
        "not_understood": list(one.not_understood),
        "parts": {name: _told(part) for name, part in one.parts.items()},
    }


def _own(document: JsonObject, where: str) -> Judged:
    config, _ = read_config(document, where=where)
    return Judged(Verdict(OPENS, "clearhead", config=config), counted(config), ())


def _place(name: str, revision: str | None) -> tuple[Path | None, bool]:
    """The config.json that a name leads to, and whether there are weights with it."""
    path = Path(name)
    if path.suffix == ".json" and path.is_file():
        return path, False
    top = local_folder(name)
    if top is None:
        # Of a model on the hub only the config is fetched before its weights are known to be of use.
        file = fetched_config(name, revision)
        return file, file is not None
    folder = network_folder(top)
    if (top / ADAPTER).is_file() or not (folder / CONFIG).is_file():
        return None, False
    if any((folder / file).exists() for file in (MODEL, INDEX, BIN, BIN_INDEX)):
        return folder / CONFIG, True
    refuse_other_form(folder)
    return folder / CONFIG, False
