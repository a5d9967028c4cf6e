"""Reads preprocessor_config.json, which says how a model reads pictures or sounds. Imports no torch."""

import json
from collections.abc import Collection, Mapping
from typing import Final, TypeVar

from pydantic import JsonValue, ValidationError

from clearhead.config import Config
from clearhead.errors import UserError, expectation

ANOTHER: Final = "try the file it came with"

C = TypeVar("C", bound=Config)


def read_fields(
    document: Mapping[str, JsonValue],
    config: type[C],
    *,
    ignored: Collection[str],
    only: Mapping[str, JsonValue],
    expected: Mapping[str, str],
    where: str,
) -> C:
    """The fields of a document. Null stands for a field's default.

    `ignored` are fields that change no input, `only` those of which one value is supported, and `expected` says what a
    field holds. Raises UserError for any other field, and for a value that is missing or not supported.
    """
    values = {name: value for name, value in document.items() if value is not None and name not in ignored}
    for name, supported in only.items():
        if (value := values.pop(name, supported)) != supported:
            raise UserError(f"{where}:{name}: expected {supported!r}, got {repr(value)[:100]}; only that is supported")
    for name in sorted(values.keys() - config.model_fields.keys()):
        raise UserError(
            f"{where}:{name}: expected no such field, got {repr(values[name])[:100]}; remove it if no input needs it"
        )
    try:
        return config.model_validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    message = f"expected {expected[name]}" if name in expected else expectation(first)
    got = f", got {repr(values[name])[:100] if name in values else 'none'}" if name else ""
    raise UserError(f"{where}{name and f':{name}'}: {message}{got}; {ANOTHER}")
