"""Chat templates: turn a conversation into the text form a model was trained on. Imports neither torch nor jinja2."""

import json
import traceback
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from clearhead.errors import UserError, reason

WHERE = "chat_template"
Message = Mapping[str, JsonValue]

_MAX_TEMPLATE = 1 << 18
_SAFE_JINJA = (3, 1, 6)
_WORK = 1 << 25
_WORK_PER_CHARACTER = 1_000
# Names under which a message carries its reasoning. Templates read the first.
_REASONING = ("reasoning_content", "thinking", "reasoning")


def render(
    template: str,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = False,
    special: Mapping[str, str],
    tools: Sequence[Message] | None = None,
) -> str:
    """The text of a conversation, equal to the reference library's `apply_chat_template(..., tokenize=False)`.

    `special` names the special tokens (`bos_token`, ...). `tools` are JSON schemas. A template is untrusted code:
    it runs in a sandbox, on copies, with a bounded allowance of work. Raises UserError if it fails in any way.
    """
    if len(template) > _MAX_TEMPLATE:
        raise UserError(f"{WHERE}: expected at most {_MAX_TEMPLATE} characters, got {len(template)}")
    if not messages:
        raise UserError("messages: expected a list of at least one message; try [{'role': 'user', 'content': …}]")
    _require_jinja()
    values: dict[str, JsonValue] = {
        **special,
        "messages": [_message(message) for message in _plain(messages, where="messages")],
        "tools": None if tools is None else [*_plain(tools, where="tools")],
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
    }
    return _rendered(template, values)


def _rendered(template: str, values: Mapping[str, JsonValue]) -> str:
    import jinja2

    from clearhead.text import meter, sandbox

    work = _WORK + _WORK_PER_CHARACTER * len(json.dumps(values))
    try:
        with meter.allowance(work):
            return sandbox.compiled(template).render(values)
    except jinja2.TemplateSyntaxError as error:
        raise UserError(f"{WHERE}:{error.lineno}: expected a Jinja template, got {reason(error)}") from None
    except sandbox.Refused as error:
        message = f"expected a conversation it accepts, got its refusal: {reason(error)}"
        raise UserError(f"{_place(error)}: {message}; try other messages") from None
    except meter.Exhausted as error:
        raise UserError(f"{_place(error)}: expected a template that ends soon, got {reason(error)}") from None
    except jinja2.exceptions.SecurityError as error:
        raise UserError(f"{_place(error)}: expected a template that only reads messages, got {reason(error)}") from None
    except Exception as error:  # untrusted code may fail in any way
        got = f"{type(error).__name__}: {reason(error)}"
        raise UserError(f"{_place(error)}: expected messages that it can write, got {got}") from None


def _plain(items: Sequence[Message], *, where: str) -> list[dict[str, JsonValue]]:
    """A copy made of JSON's own types only, so that a template cannot reach methods of other types."""
    try:
        return json.loads(json.dumps([dict(item) for item in items]))
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{where}: expected tables of text, numbers and lists, got {reason(error)}") from None


def _message(message: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The message without its null fields, and its reasoning under each name that templates know."""
    present: dict[str, JsonValue] = {name: value for name, value in message.items() if value is not None}
    reasoning = next((present[name] for name in _REASONING if name in present), None)
    return present if reasoning is None else {"thinking": reasoning, **present, "reasoning_content": reasoning}


def _require_jinja() -> None:
    try:
        import jinja2
    except ImportError:
        raise UserError(f"{WHERE}: expected the package jinja2, got none; try pip install 'jinja2>=3.1.6'") from None
    version = tuple(int(number) for number in jinja2.__version__.split(".")[:3] if number.isdigit())
    if version < _SAFE_JINJA:
        older = f"expected jinja2 3.1.6 or newer (older sandboxes leak), got {jinja2.__version__}"
        raise UserError(f"{WHERE}: {older}; try pip install -U jinja2")


def _place(error: Exception) -> str:
    """chat_template:LINE if the line is known."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"]
    return f"{WHERE}:{lines[-1]}" if lines else WHERE
