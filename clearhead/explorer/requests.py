"""What a page may ask: ui/src/core/protocol.ts in Python. A question that is not one is refused, its field named."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, JsonValue, ValidationError, model_validator

from clearhead.config import Config
from clearhead.errors import UserError
from clearhead.explorer.manifest import StackName
from clearhead.weights.documents import shown

Text = Annotated[str, Field(max_length=100_000)]
Picture = Annotated[str, Field(max_length=32_000_000)]
"""A data URL of at most 24 MB of image, or `example:N`."""
Address = Annotated[str, Field(min_length=1, max_length=300)]
Addresses = Annotated[list[Address], Field(min_length=1, max_length=4096)]
Whole = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Natural = Annotated[int, Field(ge=0, lt=2**31)]
Several = Annotated[int, Field(ge=1, le=100)]
Number = Annotated[float, Field(ge=-3e38, le=3e38)]
PositionKind = Annotated[str, Field(min_length=1, max_length=40)]


class Asked(Config):
    """Nothing is converted: the number 1 is not the text "1", nor true."""

    model_config = ConfigDict(strict=True)


class Change(Asked):
    """Another config over the same weights: what is absent stays as it was trained."""

    scale: bool = True
    """False: scores are not divided by sqrt(d_k)."""
    positions: PositionKind | None = None
    """Of every stack."""


class Edit(Asked):
    """A value put where another was."""

    at: Address
    do: Literal["zero", "mean", "set", "scale", "close", "patch"]
    value: Number | Annotated[list[Number], Field(min_length=1, max_length=2**20)] | None = None
    from_: "RunRequest | None" = Field(default=None, alias="from")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.do == "set" and self.value is None:
            raise ValueError("set needs value, a number or a row of numbers")
        if self.do == "scale" and not isinstance(self.value, int | float):
            raise ValueError("scale needs value, a number")
        if self.do == "patch" and self.from_ is None:
            raise ValueError("patch needs from, another run")
        return self


class RunRequest(Asked):
    """Everything that decides the numbers of a forward pass."""

    text: Text
    target: Text | None = None
    written: Annotated[list[Natural], Field(max_length=2**16)] | None = None
    """Tokens that the decoder reads in place of the target's: what a model writes may spell no text."""
    image: Picture | None = None
    step: Natural | None = None
    edits: Annotated[list[Edit], Field(max_length=256)] = Field(default_factory=list[Edit])
    change: Change = Change()

    @property
    def key(self) -> str:
        """Equal for equal requests."""
        return self.model_dump_json(by_alias=True)


# --- questions ------------------------------------------------------------------------------------------------


class Question(Asked):
    """What all have in common: which one it is."""

    ask: str


class OfRun(Question):
    """A question about one forward pass."""

    run: RunRequest


class Values(OfRun):
    """Recorded numbers, whole or a part."""

    at: Addresses
    dtype: Literal["float32", "float16"] = "float32"


class Weights(Question):
    """Parameters, whole or one row."""

    at: Addresses
    step: Natural | None = None


class Texts(Question):
    """The page's texts."""

    language: Annotated[str, Field(max_length=20)]


class Tokenize(Question):
    """How a text is cut."""

    text: Annotated[str, Field(max_length=20_000)]
    """Shorter than what a pass reads: every merge of every word is told."""
    target: bool = False


class Effects(OfRun):
    """How much the answer changes without each part."""

    at: Addresses
    position: Whole | None = None


class Statistics(OfRun):
    """What each head does; `at` asks for value-weighted norms of these weights."""

    at: Annotated[list[Address], Field(max_length=4096)] = Field(default_factory=list[str])


class Lens(OfRun):
    """What each block would say."""

    k: Several = 5


class Attribution(OfRun):
    """Which part wrote how much of a logit."""

    position: Whole
    logit: Natural
    minus: Natural | None = None


class ById(Asked):
    """A row of the token table."""

    id: Natural


class ByAddress(Asked):
    """Any recorded vector as wide as the token table."""

    at: Address


class Neighbours(OfRun):
    """The nearest rows of the token table."""

    stack: StackName
    of: ById | ByAddress
    k: Several = 10


class GenerateSettings(Asked):
    """How text is written."""

    max_new_tokens: Annotated[int, Field(ge=1, le=250)]
    beams: Annotated[int, Field(ge=1, le=16)] = 1
    """Their product bounds the tree: at most 4,096 nodes."""
    temperature: Annotated[float, Field(ge=0, le=100)] = 0.0
    top_k: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Natural = 0
    length_penalty: Annotated[float, Field(ge=-50, le=50)] | None = None


class Generate(OfRun):
    """How the model goes on."""

    settings: GenerateSettings


class Export(OfRun):
    """The page as one file, which begins with `run` and, where there is one, `other` beside it."""

    other: RunRequest | None = None
    state: Annotated[str, Field(pattern="^#", max_length=2_000_000)] | None = None
    """The fragment that the page begins with."""


Q = TypeVar("Q", bound=Asked)


def checked(kind: type[Q], question: Mapping[str, JsonValue]) -> Q:
    """The question, each field as it must be; else UserError names the first that is not."""
    try:
        return kind.model_validate(question)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = shown(".".join(map(str, first["loc"]))) or "question"
        given = repr(first["input"])
        got = "" if given[:1] in "{[" else f", got {shown(given[:100])}"
        message = first["msg"].removeprefix("Value error, ").replace("Input should be", "expected", 1)
        if first["type"] == "missing":
            message, got = "expected a value", ", got none"
        elif first["type"] == "extra_forbidden":
            message, got = "expected no such field", ""
        raise UserError(f"{field}: {shown(message)}{got}; try it as the protocol says") from None
