"""The generation settings of models that write what a sound says: the tokens that name language and task."""

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from clearhead.recipe.generation import SpeechTokens

NAME = re.compile(r"<\|(.+)\|>")
KEPT = ("alignment_heads", "max_initial_timestamp_index", "prev_sot_token_id", "is_multilingual")
"""Fields that change no text without times."""

Id = Annotated[int, Field(ge=0, lt=2**31)]


class SpeechFields(BaseModel):
    """The supported fields under their original names. Null counts as absent."""

    model_config = ConfigDict(frozen=True, strict=True)

    lang_to_id: dict[str, Id] | None = None
    task_to_id: dict[str, Id] | None = None
    no_timestamps_token_id: Id | None = None
    language: str | None = None
    task: str | None = None
    forced_decoder_ids: list[list[int | None]] | None = None
    """The older way to name language and task: the place of a token after the start token, and its id."""
    is_multilingual: bool | None = None
    return_timestamps: bool | None = None
    alignment_heads: JsonValue = None
    max_initial_timestamp_index: JsonValue = None
    prev_sot_token_id: JsonValue = None


def read_speech(said: SpeechFields) -> SpeechTokens | None:
    """The tokens; None if no field names one."""
    if said.lang_to_id is None and said.task_to_id is None and said.no_timestamps_token_id is None:
        return None
    several = said.is_multilingual is not False
    languages = {_bare(name): token for name, token in (said.lang_to_id or {}).items()} if several else {}
    tasks = (said.task_to_id or {}) if several else {}
    forced = {pair[-1] for pair in said.forced_decoder_ids or () if pair}
    older = {
        "language": next((name for name, token in languages.items() if token in forced), None),
        "task": next((name for name, token in tasks.items() if token in forced), None),
    }
    fields = {
        "languages": languages,
        "tasks": tasks,
        "no_timestamps_id": said.no_timestamps_token_id,
        "language": older["language"] if said.language is None else _bare(said.language),
        "task": said.task if said.task in tasks else older["task"] or "transcribe",
        "times": bool(said.return_timestamps) and said.no_timestamps_token_id is not None,
        "kept": {name: value for name in KEPT if (value := dict(said)[name]) is not None},
    }
    return SpeechTokens.model_validate(fields)


def _bare(name: str) -> str:
    """en for <|en|>"""
    found = NAME.fullmatch(name)
    return found[1] if found else name


def write_speech(speech: SpeechTokens | None) -> dict[str, JsonValue]:
    """The fields from which `read_speech` restores these tokens."""
    if speech is None:
        return {}
    languages: dict[str, JsonValue] = {f"<|{name}|>": token for name, token in speech.languages.items()}
    tasks: dict[str, JsonValue] = {**speech.tasks}
    return {
        "lang_to_id": languages or None,
        "task_to_id": tasks or None,
        "no_timestamps_token_id": speech.no_timestamps_id,
        "language": speech.language,
        "task": speech.task if speech.is_multilingual and speech.task != "transcribe" else None,
        "return_timestamps": speech.times or None,
        **speech.kept,
    }
