"""The requests of clients: every field with its limits, and one line for each mistake. No torch."""

import json
import reprlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from clearhead.errors import expectation
from clearhead.web.limits import parsed

T = TypeVar("T")
R = TypeVar("R", bound="Request")

MOST_STOPS = 4
LONGEST_STOP = 1000
"""Characters of a stop string."""
MOST_LIKELIEST = 20
MOST_EDITS = 16

Texts = Annotated[list[str], Field(fail_fast=True)]
"""Stops at the first mistake of a list: an error for each of millions of members would take gigabytes."""
Ids = Annotated[list[int], Field(fail_fast=True)]
Unused = AfterValidator(lambda _: None)
"""A field that is accepted and not used. It drops the value, which may be large."""
WITHOUT_EFFECT: Mapping[str, tuple[JsonValue, ...]] = {
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


class Wrong(Exception):
    """A wrong request: the HTTP status, one line about the mistake, and the field."""

    def __init__(self, message: str, field: str | None = None, *, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.field, self.code = status, field, code


class Strict(BaseModel):
    """Refuses unknown fields and converts no types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        # Like `extra`, but only for the first such field.
        if isinstance(value, dict):
            for name in value:
                if name not in cls.model_fields:
                    raise PydanticCustomError(NO_SUCH_FIELD, "no such field", {"name": name})
        return value


class Request(Strict):
    """The fields of every request."""

    model: str | None = None
    """The name of the server's only model."""
    user: Annotated[str | None, Unused] = None
    store: Annotated[bool | None, Unused] = None
    safety_identifier: Annotated[str | None, Unused] = None
    prompt_cache_key: Annotated[str | None, Unused] = None
    metadata: Annotated[dict[str, JsonValue] | None, Unused] = None


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

    max_tokens: Annotated[int, Field(ge=0)] | None = None
    temperature: Annotated[float, Field(ge=0.0), AfterValidator(lambda t: t if t > 1e-6 else 0.0)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    min_p: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0.0)] | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    stop: str | Texts | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    draft: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    edit: NamedEdit | Annotated[list[NamedEdit], Field(max_length=MOST_EDITS)] | None = None

    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, JsonValue] | None = None
    response_format: JsonValue = None
    modalities: JsonValue = None
    service_tier: JsonValue = None
    reasoning_effort: JsonValue = None
    verbosity: JsonValue = None
    tools: JsonValue = None
    tool_choice: JsonValue = None
    functions: JsonValue = None
    function_call: JsonValue = None
    prediction: JsonValue = None
    audio: JsonValue = None
    web_search_options: JsonValue = None
    parallel_tool_calls: Annotated[bool | None, Unused] = None

    @field_validator("stop")
    @classmethod
    def _some_text(cls, value: str | list[str] | None) -> str | list[str] | None:
        words = [value] if isinstance(value, str) else value or []
        if len(words) > MOST_STOPS or "" in words:
            raise ValueError(f"expected 1 to {MOST_STOPS} strings that are not empty")
        if max(map(len, words), default=0) > LONGEST_STOP:
            raise ValueError(f"expected strings of at most {LONGEST_STOP} characters")
        return value

    @field_validator(*WITHOUT_EFFECT)
    @classmethod
    def _without_effect(cls, value: T, info: ValidationInfo) -> T:
        idle = WITHOUT_EFFECT[info.field_name or ""]
        if value is not None and value not in idle:
            other = f"{' or '.join(map(json.dumps, idle))}, or no value," if idle else "no value,"
            raise ValueError(f"expected {other} because this server supports nothing else")
        return value

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @field_validator("edit", mode="wrap")
    @classmethod
    def _named(cls, value: Any, handler: Any) -> Any:
        try:
            return handler(value)
        except ValidationError:
            what = f'{{"name": NAME, "strength": NUMBER}}, or a list of up to {MOST_EDITS} of them'
            raise ValueError(f"expected {what}") from None

    @property
    def edits(self) -> list[NamedEdit]:
        """The directions to add."""
        return [self.edit] if isinstance(self.edit, NamedEdit) else self.edit or []

    @property
    def counts_tokens(self) -> bool:
        """Whether a stream ends with the number of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionRequest(Writes):
    """POST /v1/completions"""

    prompt: str | Texts | Ids | Annotated[list[Ids], Field(fail_fast=True)]
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_LIKELIEST)] | None = None
    suffix: Literal[""] | None = None
    best_of: Literal[1] | None = None

    @field_validator("prompt", mode="wrap")
    @classmethod
    def _one_line(cls, value: Any, handler: Any) -> Any:
        # Errors for each of the four types would not help a reader.
        try:
            return handler(value)
        except ValidationError:
            raise ValueError("expected text, a list of texts, token ids or a list of those") from None

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """The prompts, one or several."""
        match self.prompt:
            case str(text):
                return [text]
            case [int(), *_] as ids:
                return [[token for token in ids if isinstance(token, int)]]
            case several:
                return several  # type: ignore[return-value]


class ChatRequest(Writes):
    """POST /v1/chat/completions"""

    messages: Annotated[list[dict[str, JsonValue]], Field(min_length=1, fail_fast=True)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_LIKELIEST)] | None = None

    @field_validator("messages")
    @classmethod
    def _spoken(cls, value: list[dict[str, JsonValue]]) -> list[dict[str, JsonValue]]:
        return [_message(message) for message in value]


class TranslationRequest(Request):
    """POST /translate"""

    text: str | Texts

    @property
    def texts(self) -> list[str]:
        """The texts, one or several."""
        return [self.text] if isinstance(self.text, str) else self.text


class PredictionRequest(Request):
    """POST /v1/predict"""

    inputs: Annotated[list[str | Texts | dict[str, str]], Field(fail_fast=True)]
    labels: Texts | None = None
    """Labels of the client's, for a model of natural language inference."""
    template: str | None = None
    several: bool | None = None

    @field_validator("inputs", mode="wrap")
    @classmethod
    def _one_line(cls, value: Any, handler: Any) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise ValueError("expected a list of texts, or of pairs of texts") from None


class EmbeddingRequest(Request):
    """POST /v1/embeddings"""

    input: str | Texts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None

    @field_validator("input", mode="wrap")
    @classmethod
    def _one_line(cls, value: Any, handler: Any) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise ValueError("expected text or a list of texts") from None

    @property
    def texts(self) -> list[str]:
        """The texts, one or several."""
        return [self.input] if isinstance(self.input, str) else self.input


def read(kind: type[R], body: bytes | bytearray) -> R:
    """The request in a body. Raises Wrong, which names the field."""
    try:
        return kind.model_validate(parsed(body))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    except ValueError as error:
        raise Wrong(f"body: {error}") from None
    field = str(first["loc"][0]) if first["loc"] else None
    if first["type"] == NO_SUCH_FIELD:
        field = field or str(first.get("ctx", {})["name"])
        raise Wrong(f"{field}: no such field here; leave it out", field, code="unsupported_parameter")
    if first["type"] == "missing":
        raise Wrong(f"{field}: expected a value, got none", field)
    message = expectation(first)
    given = first["input"]
    got = "got an object" if isinstance(given, Mapping) else f"got {reprlib.repr(given):.60}"
    raise Wrong(f"{field or 'body'}: {message}, {got}", field)


def _message(message: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The message with its parts of text joined."""
    content = message.get("content")
    if not isinstance(message.get("role"), str):
        raise ValueError("expected a role in every message, such as user")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        words = [text for text in texts if isinstance(text, str)]
        content = "".join(words) if len(words) == len(content) else 0
    if not isinstance(content, str | None):
        raise ValueError("expected content of text")
    return {**message, "content": content}
