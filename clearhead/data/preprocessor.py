"""Reads preprocessor_config.json, which says how a model reads pictures or sounds. Imports no torch."""

import json
from collections.abc import Collection, Mapping
from typing import ClassVar, Final, Self

from pydantic import JsonValue, ValidationError

from clearhead.config import Config
from clearhead.errors import UserError, expectation

ANOTHER: Final = "try the file it came with"


class Preprocessor(Config):
    """Fields of preprocessor_config.json. Null stands for a field's default."""

    ignored: ClassVar[Collection[str]]
    """Fields that change no input."""
    only: ClassVar[Mapping[str, JsonValue]]
    """Fields of unsupported mechanisms, with the one value that turns each off."""
    expected: ClassVar[Mapping[str, str]]
    """What a field holds, for messages."""

    @classmethod
    def read(cls, document: Mapping[str, JsonValue], *, where: str) -> Self:
        """Reads the file. Raises UserError for any other field, and for a value that is missing or not supported."""
        values = {name: value for name, value in document.items() if value is not None and name not in cls.ignored}
        for name, supported in cls.only.items():
            if (value := values.pop(name, supported)) != supported:
                got = repr(value)[:100]
                raise UserError(f"{where}:{name}: expected {supported!r}, got {got}; only that is supported")
        for name in sorted(values.keys() - cls.model_fields.keys()):
            got = repr(values[name])[:100]
            raise UserError(f"{where}:{name}: expected no such field, got {got}; remove it if no input needs it")
        try:
            return cls.model_validate_json(json.dumps(values), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        message = f"expected {cls.expected[name]}" if name in cls.expected else expectation(first)
        got = f", got {repr(values[name])[:100] if name in values else 'none'}" if name else ""
        raise UserError(f"{where}{name and f':{name}'}: {message}{got}; {ANOTHER}")
