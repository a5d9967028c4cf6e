"""The requests of clients: every field with its limits, and one line for each mistake. No torch."""

import json
import re
import reprlib
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from clearhead.errors import expectation
from clearhead.json_text import JsonObject
from clearhead.web.limits import parsed

R = TypeVar("R", bound="Request")

MOST_STOPS = 4
LONGEST_STOP = 1000
"""Characters of a stop string."""
MOST_LIKELIEST = 20
MOST_EDITS = 16

ANYTHING: tuple[JsonValue, ...] | None = None
UNUSED = dict.fromkeys(("user", "store", "safety_identifier", "prompt_cache_key", "metadata"), ANYTHING)
"""Fields that are accepted with any value, which may be large, and dropped."""
WITHOUT_EFFECT: Mapping[str, tuple[JsonValue, ...] | None] = {
    **UNUSED,
    "parallel_tool_calls": ANYTHING,
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "service_tier": ("auto", "default"),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "prediction": (),
    "audio": (),
    "web_search_options": (),
}
"""Fields of OpenAI's that ask for nothing this server does, and the values that ask for nothing at all."""
NO_SUCH_FIELD = "no_such_field"


def _one_line(expected: str) -> WrapValidator:
    """One error in place of those of each type that a field may have."""

    def validate(value: Any, handler: Any) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise ValueError(f"expected {expected}") from None

    return WrapValidator(validate)


Texts = Annotated[list[str], Field(fail_fast=True)]
"""Stops at the first mistake of a list: an error for each of millions of members would take gigabytes."""
IdLists = Annotated[list[Annotated[list[int], Field(fail_fast=True)]], Field(fail_fast=True)]


def _in_a_list(value: Any) -> Any:
    return [value] if isinstance(value, (str, dict)) else value


OneOrMore = BeforeValidator(_in_a_list)
"""Makes a list of one value."""
TextOrTexts = Annotated[Texts, OneOrMore, _one_line("text or a list of texts")]


class Wrong(Exception):
    """A wrong request: the HTTP status, one line about the mistake, and the field."""

    def __init__(self, message: str, field: str | None = None, *, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.field, self.code = status, field, code


class Strict(BaseModel):
    """Refuses unknown fields and converts no types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    dropped: ClassVar[Mapping[str, tuple[JsonValue, ...] | None]] = {}
    """Fields without effect, with the values that they may have; None for any."""

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        # Like `extra`, but only for the first such field.
        if not isinstance(value, dict):
            return value
        for name, given in value.items():
            if name not in cls.dropped and name not in cls.model_fields:
                raise PydanticCustomError(NO_SUCH_FIELD, "no such field", {"name": name})
            idle = cls.dropped.get(name)
            if idle is not None and given not in (None, *idle):
                other = f"{' or '.join(map(json.dumps, idle))}, or no value," if idle else "no value,"
                message = f"expected {other} because this server supports nothing else"
                raise PydanticCustomError(
                    "without_effect", "{message}", {"message": message, "name": name, "got": given}
                )
        return {name: given for name, given in value.items() if name not in cls.dropped}


class Request(Strict):
    """The fields of every request."""

    dropped = UNUSED
    model: str | None = None
    """The name of the server's only model."""


class StreamOptions(Strict):
    """Options of a stream."""

    include_usage: bool = False
    include_obfuscation: Literal[False] = False


class NamedEdit(Strict):
    """A direction that the server was started with, and how much of it to add."""

    name: str
    strength: float = 1.0


class Writes(Request):
    """How to continue a text. None keeps the model's setting."""

    dropped = WITHOUT_EFFECT
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    temperature: Annotated[float, Field(ge=0.0), AfterValidator(lambda t: t if t > 1e-6 else 0.0)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    min_p: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0.0)] | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    stop: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=LONGEST_STOP)]],
            Field(max_length=MOST_STOPS, fail_fast=True),
            OneOrMore,
            _one_line(f"up to {MOST_STOPS} strings of 1 to {LONGEST_STOP} characters"),
        ]
        | None
    ) = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    draft: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    edit: (
        Annotated[
            list[NamedEdit],
            Field(max_length=MOST_EDITS),
            OneOrMore,
            _one_line(f'{{"name": NAME, "strength": NUMBER}}, or a list of up to {MOST_EDITS} of them'),
        ]
        | None
    ) = None

    @property
    def counts_tokens(self) -> bool:
        """True if a stream ends with the number of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionRequest(Writes):
    """POST /v1/completions"""

    prompt: Annotated[
        Texts | IdLists,
        # Token ids alone are one prompt, like a text alone.
        BeforeValidator(
            lambda value: [value] if isinstance(value, list) and value and isinstance(value[0], int) else value
        ),
        OneOrMore,
        _one_line("text, a list of texts, token ids or a list of those"),
    ]
    """The prompts, one or several."""
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_LIKELIEST)] | None = None
    suffix: Literal[""] | None = None
    best_of: Literal[1] | None = None


class ChatRequest(Writes):
    """POST /v1/chat/completions"""

    messages: Annotated[list[JsonObject], Field(min_length=1, fail_fast=True)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_LIKELIEST)] | None = None

    @field_validator("messages")
    @classmethod
    def _spoken(cls, value: list[JsonObject]) -> list[JsonObject]:
        return [_message(message) for message in value]


class TranslationRequest(Request):
    """POST /translate"""

    text: TextOrTexts


class PredictionRequest(Request):
    """POST /v1/predict"""

    inputs: Annotated[
        list[str | Texts | dict[str, str]], Field(fail_fast=True), _one_line("a list of texts, or of pairs of texts")
    ]
    labels: Texts | None = None
    """Labels of the client's, for a model of natural language inference."""
    template: str | None = None
    several: bool | None = None


class EmbeddingRequest(Request):
    """POST /v1/embeddings"""

    input: TextOrTexts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None


def read(kind: type[R], body: bytes | bytearray) -> R:
    """The request in a body. Raises Wrong, which names the field."""
    try:
        return kind.model_validate(parsed(body))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    except ValueError as error:
        raise Wrong(f"body: {error}") from None
    about = first.get("ctx", {})
    field = str(first["loc"][0]) if first["loc"] else about.get("name")
    if first["type"] == NO_SUCH_FIELD:
        raise Wrong(f"{field}: no such field here; leave it out", field, code="unsupported_parameter")
    if first["type"] == "missing":
        raise Wrong(f"{field}: expected a value, got none", field)
    given = about.get("got", first["input"])
    got = "got an object" if isinstance(given, Mapping) else f"got {reprlib.repr(given):.60}"
    raise Wrong(f"{field or 'body'}: {expectation(first)}, {got}", field)


def _message(message: Mapping[str, JsonValue]) -> JsonObject:
    """The message with its parts of text joined, unless a picture is among them."""
    content = message.get("content")
    if not isinstance(message.get("role"), str):
        raise ValueError("expected a role in every message, such as user")
    if isinstance(content, list):
        parts = [_part(part) for part in content]
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
        return {**message, "content": [*parts] if len(texts) < len(parts) else "".join(map(str, texts))}
    if not isinstance(content, str | None):
        raise ValueError("expected content of text")
    return {**message, "content": content}


def _part(part: JsonValue) -> JsonObject:
    """A part of a message: text, or a picture as data."""
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": dict(image)}:
            if not isinstance(url := image.get("url"), str) or not re.match(r"data:image/\w+;base64,", url):
                raise ValueError("expected a picture as data:image/png;base64,…, as nothing is fetched")
            return {"type": "image", "data": url.partition(",")[2]}
        case _:
            raise ValueError("expected content of text")


def without_pictures(messages: Sequence[Mapping[str, JsonValue]]) -> tuple[list[JsonObject], list[bytes]]:
    """The messages with a place for each picture, and the pictures' files. Raises Wrong for one that is not base64."""
    pictures: list[bytes] = []

    def placed(part: JsonValue) -> JsonValue:
        if not isinstance(part, dict) or "data" not in part:
            return part
        try:
            pictures.append(b64decode(str(part["data"]), validate=True))
        except ValueError:
            raise Wrong("messages: expected a picture in base64, got other characters", "messages") from None
        return {"type": "image"}

    contents = ((one, one.get("content")) for one in messages)
    read = [
        {**one, "content": list(map(placed, content))} if isinstance(content, list) else {**one}
        for one, content in contents
    ]
    return read, pictures
