"""The settings of text generation: number of tokens, search, sampling, the first tokens of speech. No torch."""

import json
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from clearhead.config import Config, Probability, Share
from clearhead.errors import UserError

TokenId = Annotated[int, Field(ge=0, le=2**32)]
SpeechTask = Literal["transcribe", "translate"]
ENGLISH = "en"


@cache
def language_names() -> dict[str, str]:
    """The English name of each language, by its code. They are CLDR's."""
    return json.loads(Path(__file__).with_name("languages.json").read_text(encoding="utf-8"))


class SpeechTokens(Config):
    """start, language, task, no timestamps: the tokens before a decoder's first word (Radford et al. 2022, 2.3).

    A model of one language has only the first and the last.
    """

    languages: dict[str, TokenId] = Field(default_factory=dict[str, int])
    """The token of each language, by its code: en, de."""
    tasks: dict[str, TokenId] = Field(default_factory=dict[str, int])
    """The tokens of transcribe and translate."""
    no_timestamps_id: TokenId | None = None
    """Begins a text without times. The tokens after it are times."""
    language: str | None = None
    """The language of the sounds where a call names none. None: the model hears it."""
    task: SpeechTask = "transcribe"
    """The task where a call names none."""
    times: bool = False
    """Write times too."""
    kept: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """Settings of times, for other libraries."""

    @property
    def is_multilingual(self) -> bool:
        """True if the model translates and writes several languages."""
        return bool(self.languages) and bool(self.tasks)

    @property
    def first_time(self) -> int | None:
        """The token of the time 0, after which the others follow; None for a model that has no times."""
        return None if self.no_timestamps_id is None else self.no_timestamps_id + 1

    @property
    def latest_first_time(self) -> int | None:
        """The number of the latest time with which a text may begin; None for any."""
        found = self.kept.get("max_initial_timestamp_index")
        return found if isinstance(found, int) else None

    def after_start(self, language: str | None = None, task: SpeechTask | None = None) -> list[int]:
        """The tokens between the start token and the first word."""
        last = [] if self.no_timestamps_id is None or self.times else [self.no_timestamps_id]
        if not self.is_multilingual:
            return last
        english = ENGLISH if ENGLISH in self.languages else next(iter(self.languages))
        code = self.code(language or self.language or english)
        return [self.languages[code], self.tasks[task or self.task], *last]

    def code(self, name: str) -> str:
        """The code of a language given by its code or its English name. Raises UserError for one without a token."""
        english, wanted = language_names(), name.lower()
        for code in self.languages:
            if wanted in (code, english.get(code, "").lower()):
                return code
        known = ", ".join(self.languages)
        shown = known if len(known) < 300 else f"{known[:300]}, ..."
        raise UserError(f"language: expected one of the model ({shown}), got {name!r}; try one of them")


Several = Annotated[int, Field(gt=0, le=2**16)]
Exponent = Annotated[float, Field(ge=-50.0, le=50.0)]
"""An exponent of a length, bounded so that the power of any length is finite."""


class GenerationConfig(Config):
    """Greedy by default; `beams` above 1 searches, a `temperature` above 0 samples."""

    max_new_tokens: PositiveInt = 128
    """Tokens written at most, the end token included; fewer where the model's positions end."""
    min_new_tokens: NonNegativeInt = 0
    """Tokens written before the end token is allowed."""
    max_length: PositiveInt | None = None
    """Tokens of the prompt and of what is written at most, in place of `max_new_tokens`."""
    min_length: NonNegativeInt | None = None
    """Tokens of the prompt and of what is written before the end token is allowed, in place of `min_new_tokens`."""
    n_best: Several = 1
    """Hypotheses returned for each input: the best of the beams, or as many samples."""

    beams: Several = 1
    """Running hypotheses of the beam search; 1 is greedy."""
    length_penalty: Exponent = 1.0
    """score = log-probability / length^length_penalty: above 0 favours long, below 0 short hypotheses."""
    early_stopping: bool | Literal["never"] = False
    """True: stop when `beams` hypotheses are finished; False: when no running hypothesis beats them at its length;
    never: when none can at any length."""

    temperature: NonNegativeFloat = 0.0
    """Divides the logits before sampling; 0 takes the most likely token."""
    top_k: PositiveInt | None = None
    """Sample from the k most likely tokens."""
    top_p: Share | None = None
    """Sample from the fewest tokens that hold this share of the probability (Holtzman et al. 2020, 3.1)."""
    min_p: Probability | None = None
    """Sample from tokens at least this fraction as likely as the likeliest (Nguyen et al. 2024)."""
    seed: NonNegativeInt = 0
    """Every sampled token is a function of the seed, its row and its position."""

    repetition_penalty: PositiveFloat = 1.0
    """Divides positive logits of tokens already there, multiplies negative ones (Keskar et al. 2019, 4.1)."""
    no_repeat_ngram: PositiveInt | None = None
    """No n-gram of this length occurs twice."""

    start_id: TokenId | None = None
    """The decoder's first token, which is read and not written; None: the tokenizer's begin token."""
    end_ids: tuple[TokenId, ...] = ()
    """Tokens that end a text; none: the tokenizer's end token."""
    pad_id: TokenId | None = None
    """Fills the rows of texts that have ended while others go on; None: the tokenizer's padding token."""
    forced_first_id: TokenId | None = None
    """The first token written after the start token, whatever the model predicts."""
    forced_last_id: TokenId | None = None
    """The last token of a text that reaches its limit."""
    banned_ids: tuple[TokenId, ...] = ()
    """Tokens that are never written, unless forced."""
    first_banned_ids: tuple[TokenId, ...] = ()
    """Tokens that are never the first one written, unless forced."""
    speech: SpeechTokens | None = None
    """The tokens before a text of what a sound says. Only models of sounds have them."""

    @property
    def width(self) -> int:
        """Hypotheses that grow side by side for each input."""
        return self.beams if self.temperature == 0 else self.n_best

    def after(self, n_read: int) -> Self:
        """The same settings for prompts of this length, without `max_length` and `min_length`."""
        if self.max_length is None and self.min_length is None:
            return self
        most = self.max_new_tokens if self.max_length is None else self.max_length - n_read
        if most < 1:
            expected = f"expected more than the {n_read} tokens of the prompt, got {self.max_length}"
            raise UserError(f"generation.max_length: {expected}; try max_new_tokens in its place")
        least = self.min_new_tokens if self.min_length is None else max(self.min_length - n_read, 0)
        lengths = {"max_new_tokens": most, "min_new_tokens": min(least, most), "max_length": None, "min_length": None}
        return self.model_copy(update=lengths)

    def with_ids(self, *, start_id: int | None, end_id: int | None, pad_id: int | None) -> Self:
        """The same settings with these special tokens where they name none of their own."""
        return self.model_copy(
            update={
                "start_id": start_id if self.start_id is None else self.start_id,
                "end_ids": self.end_ids or (() if end_id is None else (end_id,)),
                "pad_id": pad_id if self.pad_id is None else self.pad_id,
            }
        )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.min_new_tokens > self.max_new_tokens:
            raise ValueError(
                f"min_new_tokens={self.min_new_tokens} must be at most max_new_tokens={self.max_new_tokens}"
            )
        if self.temperature > 0 and self.beams > 1:
            raise ValueError(f"beams={self.beams} and temperature={self.temperature}: set beams=1 or temperature=0")
        if self.temperature == 0 and self.n_best > self.beams:
            raise ValueError(
                f"n_best={self.n_best} must be at most beams={self.beams}; or sample with temperature above 0"
            )
        if self.temperature == 0:
            for name in ("top_k", "top_p", "min_p"):
                if name in self.model_fields_set and dict(self)[name] is not None:
                    raise ValueError(f"{name}={dict(self)[name]} narrows sampling: set temperature above 0, e.g. 1.0")
        return self
