"""What a client may ask for, as it comes: every field, what it may be, and one line for what it may not. No torch."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

T = TypeVar("T")
R = TypeVar("R", bound="Request")

MOST_STOPS = 4
MOST_LIKELIEST = 20


class Wrong(Exception):
    """A request that cannot be answered as it is: the HTTP status, what is wrong in one line, and which field it is."""

    def __init__(self, message: str, field: str | None = None, *, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.field, self.code = status, field, code


class Request(BaseModel):
    """What all requests have in common: no field is ignored in silence, and no type is converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    model: str | None = None
    """The name that the server goes by; it has one model."""
    user: str | None = None
    """Taken and not used, as are store and metadata."""
    store: bool | None = None
    metadata: dict[str, JsonValue] | None = None


class StreamOptions(BaseModel):
    """What a stream brings besides text."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    include_usage: bool = False


class Writes(Request):
    """How a text is continued; what is None is as the model's own settings say."""

    max_tokens: Annotated[int, Field(ge=0)] | None = None
    temperature: Annotated[float, Field(ge=0.0), AfterValidator(lambda t: t if t > 1e-6 else 0.0)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    min_p: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0.0)] | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    stop: str | list[str] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None

    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, JsonValue] | None = None

    @field_validator("stop")
    @classmethod
    def _some_text(cls, value: str | list[str] | None) -> str | list[str] | None:
        words = [value] if isinstance(value, str) else value or []
        if len(words) > MOST_STOPS or "" in words:
            raise ValueError(f"expected 1 to {MOST_STOPS} strings that are not empty")
        return value

    @field_validator("presence_penalty", "frequency_penalty", "logit_bias")
    @classmethod
    def _without_effect(cls, value: T) -> T:
        if value:
            raise ValueError("expected nothing, for it is not followed here")
        return value

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def counts_tokens(self) -> bool:
        """Whether a stream ends with the number of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionRequest(Writes):
    """POST /v1/completions"""

    prompt: str | list[str] | list[int] | list[list[int]]
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_LIKELIEST)] | None = None
    suffix: Literal[""] | None = None
    best_of: Literal[1] | None = None

    @field_validator("prompt", mode="wrap")
    @classmethod
    def _one_line(cls, value: Any, handler: Any) -> Any:
        # Which of four types it nearly was says nothing to a reader.
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

    messages: Annotated[list[dict[str, JsonValue]], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_LIKELIEST)] | None = None

    @field_validator("messages")
    @classmethod
    def _spoken(cls, value: list[dict[str, JsonValue]]) -> list[dict[str, JsonValue]]:
        return [_message(message) for message in value]


class TranslationRequest(Request):
    """POST /translate"""

    text: str | list[str]

    @property
    def texts(self) -> list[str]:
        """The texts, one or several."""
        return [self.text] if isinstance(self.text, str) else self.text


def read(kind: type[R], body: bytes) -> R:
    """The request in a body; raises Wrong, which names the field."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
    field = str(first["loc"][0]) if first["loc"] else None
    given = first["input"]
    match first["type"]:
        case "json_invalid":
            raise Wrong(f"body: expected JSON; {first['msg'].removeprefix('Invalid JSON: ')}")
        case "extra_forbidden":
            raise Wrong(f"{field}: no such field here; leave it out", field, code="unsupported_parameter")
        case "missing":
            raise Wrong(f"{field}: expected a value, got none", field)
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "expected", 1)
    got = "got an object" if isinstance(given, Mapping) else f"got {given!r:.60}"
    raise Wrong(f"{field or 'body'}: {message}, {got}", field)


def _message(message: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The message with its content as text; parts of text are joined."""
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
