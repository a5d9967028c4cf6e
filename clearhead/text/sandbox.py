"""Renders untrusted Jinja templates. Only a worker imports this module, which imports jinja2."""

import json
import traceback
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from clearhead.errors import UserError, reason, refuse

WHERE = "chat_template"


class Refused(jinja2.TemplateError):
    """The template refused its input by calling raise_exception."""


class Generation(Extension):
    """{% generation %} ... {% endgeneration %} marks the assistant's own words. The text stays the same."""

    tags = {"generation"}  # noqa: RUF012  # as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class Environment(ImmutableSandboxedEnvironment):
    """Jinja as chat templates expect it. Access to an unsafe attribute is an error, and not an undefined value."""

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, LoopControlExtension])
        self.filters["tojson"] = _to_json
        own: dict[str, Any] = {"raise_exception": _raise, "strftime_now": _now}
        self.globals.update(own)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        raise jinja2.exceptions.SecurityError(f"access to {attribute!r} of {type(obj).__name__!r} is unsafe")


def _raise(message: object) -> NoReturn:
    raise Refused(str(message))


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON without Jinja's HTML escapes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@lru_cache(maxsize=16)
def _compiled(template: str) -> jinja2.Template:
    return Environment().from_string(template)


def render(template: str, values: dict[str, Any]) -> str:
    """The text that a template makes of these values. Raises UserError, which names the line, if it fails."""
    try:
        return _compiled(template).render(values)
    except MemoryError:
        raise
    except jinja2.TemplateSyntaxError as error:
        raise refuse(f"{WHERE}:{error.lineno}", "a Jinja template", reason(error)) from None
    except Exception as error:  # An untrusted program may fail in any way.
        raise _explained(error) from None


def _explained(error: Exception) -> UserError:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"]
    where = f"{WHERE}:{lines[-1]}" if lines else WHERE
    match error:
        case Refused():
            return refuse(where, "a conversation it accepts", f"its refusal: {reason(error)}", "try other messages")
        case jinja2.exceptions.SecurityError():
            return refuse(where, "a template that only reads messages", reason(error))
        case _:
            return refuse(where, "messages that it can write", f"{type(error).__name__}: {reason(error)}")
