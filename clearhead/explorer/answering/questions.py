"""What a page asks and what it gets: the parts of questions, and replies (ui/src/core/protocol.ts)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

import torch
from pydantic import ConfigDict, Field, JsonValue, ValidationError, model_validator
from safetensors.torch import save
from torch import Tensor

from clearhead.brief import brief
from clearhead.checkpoints.weights.documents import shown
from clearhead.config import Config
from clearhead.errors import UserError, expectation, sizes

BoundedText = Annotated[str, Field(max_length=100_000)]
Picture = Annotated[str, Field(max_length=32_000_000)]
"""A data URL of at most 24 MB of image, or `example:N`."""
AddressText = Annotated[str, Field(min_length=1, max_length=300)]
Addresses = Annotated[list[AddressText], Field(min_length=1, max_length=4096)]
Whole = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Natural = Annotated[int, Field(ge=0, lt=2**31)]
COMPARED = -1
"""The step that stands for the model that the opened one is compared with."""
Step = Annotated[int, Field(ge=COMPARED, lt=2**31)]
SmallCount = Annotated[int, Field(ge=1, le=100)]
Number = Annotated[float, Field(ge=-3e38, le=3e38)]


class Asked(Config):
    """Part of a question. No value is converted: the number 1 is neither the text "1" nor true."""

    model_config = ConfigDict(strict=True)


class Change(Asked):
    """Another config over the same weights. An absent field stays as it was trained."""

    scale: bool = True
    """False leaves out the division of the scores by sqrt(d_k)."""
    positions: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    """The kind of positions of every stack."""


TextSet = Annotated[list[Annotated[str, Field(min_length=1, max_length=10_000)]], Field(min_length=1, max_length=256)]


class TextSets(Asked):
    """Two sets of texts; of an encoder-decoder each with a tab and a target behind it."""

    positive: TextSet
    negative: TextSet


class EditRequest(Asked):
    """Replaces a value."""

    at: AddressText
    do: Literal["zero", "mean", "set", "scale", "close", "patch", "add"]
    value: Number | Annotated[list[Number], Field(min_length=1, max_length=2**20)] | None = None
    from_: "RunRequest | None" = Field(default=None, alias="from")
    of: TextSets | None = None
    """add: the sets of texts, the difference of whose means is added, `value` times."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.do == "set" and self.value is None:
            raise ValueError("set needs value, a number or a row of numbers")
        if self.do in ("scale", "add") and not isinstance(self.value, int | float):
            raise ValueError(f"{self.do} needs value, a number")
        if self.do == "add" and self.of is None:
            raise ValueError("add needs of, two sets of texts")
        if self.do == "patch" and self.from_ is None:
            raise ValueError("patch needs from, another run")
        return self


class RunRequest(Asked):
    """Everything that decides the numbers of a forward pass."""

    text: BoundedText
    target: BoundedText | None = None
    written: Annotated[list[Natural], Field(max_length=2**16)] | None = None
    """Tokens that the decoder reads instead of the target's: those that a model wrote may not spell a text."""
    image: Picture | None = None
    step: Step | None = None
    """A checkpoint, or COMPARED; None: the model that was opened."""
    edits: Annotated[list[EditRequest], Field(max_length=256)] = Field(default_factory=list[EditRequest])
    change: Change = Change()

    @property
    def key(self) -> str:
        """A string that is equal for equal requests."""
        return self.model_dump_json(by_alias=True)


class OfRun(Asked):
    """Asks about one forward pass."""

    run: RunRequest
    later: bool = False
    """Whether it waits for all other questions."""


Q = TypeVar("Q", bound=Asked)
T = TypeVar("T")


def checked(kind: type[Q], question: Mapping[str, JsonValue]) -> Q:
    """The question. Raises UserError, which names the first field that is wrong."""
    try:
        return kind.model_validate(question)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = shown(".".join(map(str, first["loc"]))) or "question"
        given = repr(first["input"])
        got = "" if given[:1] in "{[" else f", got {shown(given[:100])}"
        message = expectation(first)
        if first["type"] == "missing":
            message, got = "expected a value", ", got none"
        elif first["type"] == "extra_forbidden":
            message, got = "expected no such field", ""
        raise UserError(f"{field}: {shown(message)}{got}; try it as the protocol says") from None


REPLY_BYTES = 64 << 20
"""The limit for the tensors of one reply."""


@dataclass(frozen=True)
class Reply(Generic[T]):
    """The answer to a question: JSON, which `T` describes, and tensors."""

    __repr__ = brief

    json: Mapping[str, Any]
    tensors: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])

    def encode(self, *, limited: bool = True) -> bytes:
        """One safetensors file, the JSON part in its metadata.

        Raises UserError for more than REPLY_BYTES of tensors, if it is `limited`, and if edits made a figure NaN or
        infinite.
        """
        if limited:
            check_size(sum(tensor.nbytes for tensor in self.tensors.values()))
        try:
            text = json.dumps(self.json, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except ValueError:
            raise UserError("reply: expected finite figures, got NaN or infinity; try another edit") from None
        return save({name: _apart(tensor) for name, tensor in self.tensors.items()}, {"reply": text})


def _apart(tensor: Tensor) -> Tensor:
    """A contiguous copy on the CPU, as safetensors needs it."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def check_size(n_bytes: int) -> None:
    """Raises UserError if a reply is too large to send."""
    if n_bytes > REPLY_BYTES:
        most, got = sizes(REPLY_BYTES, n_bytes)
        raise UserError(f"reply: expected at most {most} of numbers, got {got}; ask for fewer at a time, or for rows")
