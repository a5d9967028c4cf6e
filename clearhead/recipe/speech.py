"""The tokens with which a decoder begins to write what a sound says. Imports no torch."""

import json
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from clearhead.config import Config
from clearhead.errors import UserError

TokenId = Annotated[int, Field(ge=0, le=2**32)]
SpeechTask = Literal["transcribe", "translate"]
ENGLISH = "en"


@cache
def language_names() -> dict[str, str]:
    """The English name of each language, by its code. tools/demo_locales.py writes them from CLDR."""
    return json.loads(Path(__file__).with_name("languages.json").read_text(encoding="utf-8"))


class SpeechTokens(Config):
    """start, language, task, no timestamps: what a decoder reads before its first word (Radford et al. 2022, 2.3).

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
        """Whether the model writes several languages, and translates."""
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
