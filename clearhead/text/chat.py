"""Chat templates: turn a conversation into the text form a model was trained on. Imports neither torch nor jinja2."""

import json
from collections.abc import Mapping, Sequence
from functools import cache

from pydantic import JsonValue

from clearhead.errors import reason, refuse
from clearhead.json_text import JsonObject
from clearhead.text.worker import Worker

WHERE = "chat_template"
Message = Mapping[str, JsonValue]

_MAX_TEMPLATE = 1 << 18
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
    it runs in a sandbox, in a process with limits of memory and time. Raises UserError if it fails in any way.
    """
    if len(template) > _MAX_TEMPLATE:
        raise refuse(WHERE, f"at most {_MAX_TEMPLATE} characters", len(template))
    if not messages:
        raise refuse("messages", "a list of at least one message", remedy="try [{'role': 'user', 'content': …}]")
    values: JsonObject = {
        **special,
        "messages": [_message(message) for message in _tables(messages, where="messages")],
        "tools": None if tools is None else [*_tables(tools, where="tools")],
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
    }
    return _worker().ask("render", template, values)


@cache
def _worker() -> Worker:
    return Worker(WHERE, "a template that needs", "messages that it can write")


def _tables(items: Sequence[Message], *, where: str) -> list[JsonObject]:
    """The items as JSON tables. Raises UserError for anything else."""
    try:
        tables = [dict(item) for item in items]
        json.dumps(tables)
    except (TypeError, ValueError, RecursionError) as error:
        raise refuse(where, "tables of text, numbers and lists", reason(error)) from None
    return tables


def _message(message: JsonObject) -> JsonObject:
    """The message without its null fields, and its reasoning under each name that templates know."""
    present: JsonObject = {name: value for name, value in message.items() if value is not None}
    reasoning = next((present[name] for name in _REASONING if name in present), None)
    return present if reasoning is None else {"thinking": reasoning, **present, "reasoning_content": reasoning}
