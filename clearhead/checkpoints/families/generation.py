"""Generation settings of the Hugging Face libraries, from generation_config.json or fields of config.json."""

import logging
import re
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from clearhead.config import Probability, Share
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.recipe import explain
from clearhead.recipe.generation import Exponent, GenerationConfig, Several, SpeechTokens
from clearhead.recipe.names import schema_of

NAME = re.compile(r"<\|(.+)\|>")
KEPT = ("alignment_heads", "max_initial_timestamp_index", "prev_sot_token_id", "is_multilingual")
"""Fields that change no text without times."""

TokenId = Annotated[int, Field(ge=0, lt=2**31)]

_log = logging.getLogger("clearhead")

FILE, LEGACY = "generation_config.json", "config.json"
TOP_K = 50
"""Default top_k of the reference library's sampling."""
SPECIAL = ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id")

_TABLE = tomllib.loads(files("clearhead.checkpoints.families").joinpath("generation.toml").read_text(encoding="utf-8"))
IGNORED: tuple[str, ...] = tuple(_TABLE["ignored"])
"""Fields that change no token."""
UNFOLLOWED: JsonObject = {**dict.fromkeys(_TABLE["absent"]), **_TABLE["without_effect"]}
"""Unsupported fields that change tokens -> the value at which each has no effect."""
SAME: dict[str, str] = _TABLE["same"]
"""Their fields -> ours, where values are the same."""

Id = Annotated[int, Field(ge=-(2**31), lt=2**31)]
"""The id of a token. A negative value means none."""


class GenerationFields(BaseModel):
    """The supported fields under their original names. Null counts as absent."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    max_new_tokens: PositiveInt | None = None
    min_new_tokens: NonNegativeInt | None = None
    max_length: PositiveInt | None = None
    min_length: NonNegativeInt | None = None
    num_return_sequences: Several | None = None
    num_beams: Several | None = None
    length_penalty: Exponent | None = None
    early_stopping: bool | Literal["never"] | None = None
    do_sample: bool | None = None
    temperature: NonNegativeFloat | None = None
    top_k: NonNegativeInt | None = None
    top_p: Share | None = None
    min_p: Probability | None = None
    seed: NonNegativeInt | None = None
    """Only written by this library."""
    repetition_penalty: PositiveFloat | None = None
    no_repeat_ngram_size: NonNegativeInt | None = None
    decoder_start_token_id: Id | None = None
    bos_token_id: Id | None = None
    eos_token_id: Id | list[Id] | None = None
    pad_token_id: Id | None = None
    forced_bos_token_id: Id | None = None
    force_bos_token_to_be_generated: bool | None = None
    """The older way to say that bos_token_id is forced."""
    forced_eos_token_id: Id | list[Id] | None = None
    bad_words_ids: list[list[Id]] | None = None
    suppress_tokens: list[Id] | None = None
    begin_suppress_tokens: list[Id] | None = None
    lang_to_id: dict[str, TokenId] | None = None
    task_to_id: dict[str, TokenId] | None = None
    no_timestamps_token_id: TokenId | None = None
    language: str | None = None
    task: str | None = None
    forced_decoder_ids: list[list[int | None]] | None = None
    """The older way to name language and task: the place of a token after the start token, and its id."""
    is_multilingual: bool | None = None
    return_timestamps: bool | None = None
    alignment_heads: JsonValue = None
    max_initial_timestamp_index: JsonValue = None
    prev_sot_token_id: JsonValue = None

    @property
    def samples(self) -> bool:
        """True if tokens are sampled. Beam search never samples."""
        return bool(self.do_sample) and self.temperature != 0 and self.num_beams in (None, 1)

    @property
    def ends(self) -> tuple[int, ...]:
        """The end tokens."""
        return _ids(self.eos_token_id)


def read_speech(said: GenerationFields) -> SpeechTokens | None:
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


def write_speech(speech: SpeechTokens | None) -> JsonObject:
    """The fields from which `read_speech` restores these tokens."""
    if speech is None:
        return {}
    languages: JsonObject = {f"<|{name}|>": token for name, token in speech.languages.items()}
    tasks: JsonObject = {**speech.tasks}
    return {
        "lang_to_id": languages or None,
        "task_to_id": tasks or None,
        "no_timestamps_token_id": speech.no_timestamps_id,
        "language": speech.language,
        "task": speech.task if speech.is_multilingual and speech.task != "transcribe" else None,
        "return_timestamps": speech.times or None,
        **speech.kept,
    }


def read_generation(
    model_config: Mapping[str, JsonValue],
    generation_config: Mapping[str, JsonValue] | None,
    *,
    encoder_decoder: bool,
    where: str,
) -> GenerationConfig:
    """The settings of the folder `where`, from generation_config.json or otherwise the older fields of config.json.

    config.json supplies special tokens that the former does not name. max_length and min_length include the start
    token of an encoder-decoder, or the prompt of a decoder alone. Logs unsupported fields in one line. Raises
    UserError if a value has the wrong type.
    """
    fields, place = generation_config, f"{where}/{FILE}"
    if fields is None:
        known = (GenerationFields.model_fields.keys() | UNFOLLOWED.keys()) - {"seed"}
        fields, place = {name: value for name, value in model_config.items() if name in known}, f"{where}/{LEGACY}"
    inherited = _document({name: model_config.get(name) for name in SPECIAL}, f"{where}/{LEGACY}")
    said = _document(fields, place).model_dump(exclude_none=True)
    document = GenerationFields(**{**inherited.model_dump(exclude_none=True), **said})
    if left_out := [name for name, value in fields.items() if _is_unfollowed(name, value, document)]:
        told = ", ".join(f"{name}={fields[name]!r}"[:60] for name in left_out)
        _log.warning("%s: not followed, so texts may differ from the reference's: %s", place, told)
    return GenerationConfig.model_validate(
        _choice(document)
        | _lengths(document, encoder_decoder=encoder_decoder)
        | _tokens(document, encoder_decoder=encoder_decoder)
    )


def _document(fields: Mapping[str, JsonValue], place: str) -> GenerationFields:
    try:
        return GenerationFields.model_validate(dict(fields))
    except ValidationError as error:
        raise UserError(
            f"{explain(error, place, schema=schema_of(GenerationFields))}; try without this field"
        ) from None


def _is_unfollowed(name: str, value: JsonValue, document: GenerationFields) -> bool:
    """Returns True if a field that may change the output has no counterpart in our settings."""
    match name:
        case "bad_words_ids":
            return any(len(word) != 1 for word in document.bad_words_ids or ())
        case "forced_eos_token_id":
            return len(_ids(document.forced_eos_token_id)) > 1
        case "do_sample":
            return bool(value) and document.temperature != 0 and not document.samples
        case "num_return_sequences":
            return not document.samples and (document.num_return_sequences or 1) > (document.num_beams or 1)
    if name in GenerationFields.model_fields or any(fnmatchcase(name, pattern) for pattern in IGNORED):
        return False
    return value is not None and (name not in UNFOLLOWED or value != UNFOLLOWED[name])


def _lengths(said: GenerationFields, *, encoder_decoder: bool) -> JsonObject:
    most, least = said.max_new_tokens, said.min_new_tokens
    longest = said.max_length if most is None else None
    shortest = said.min_length if least is None else None
    if encoder_decoder:
        # They count the start token.
        most = most if longest is None else max(longest - 1, 1)
        least = least if shortest is None else max(shortest - 1, 0)
        longest = shortest = None
    if most is None:
        most = max(GenerationConfig().max_new_tokens, least or 0)
    least = min(least or 0, most)
    return {"max_new_tokens": most, "min_new_tokens": least, "max_length": longest, "min_length": shortest or None}


def _choice(said: GenerationFields) -> JsonObject:
    """The settings with the same values, and those of search or sampling."""
    found: JsonObject = {ours: getattr(said, theirs) for theirs, ours in SAME.items()}
    found["no_repeat_ngram"] = said.no_repeat_ngram_size or None
    if said.samples:
        found["temperature"] = 1.0 if said.temperature is None else said.temperature
        found["top_k"] = TOP_K if said.top_k is None else said.top_k or None
    else:
        found |= dict.fromkeys(("temperature", "top_p", "min_p"))
        found["n_best"] = min(said.num_return_sequences or 1, said.num_beams or 1)
    return {name: value for name, value in found.items() if value is not None}


def _tokens(said: GenerationFields, *, encoder_decoder: bool) -> JsonObject:
    start = said.decoder_start_token_id if encoder_decoder else None
    first = said.bos_token_id if said.force_bos_token_to_be_generated else said.forced_bos_token_id
    speech = read_speech(said)
    words = [word[0] for word in said.bad_words_ids or () if len(word) == 1 and word[0] not in said.ends]
    return {
        "start_id": _id(said.bos_token_id if start is None else start),
        "end_ids": list(said.ends),
        "pad_id": _id(said.pad_token_id),
        "forced_first_id": _id(first),
        "forced_last_id": _id(said.forced_eos_token_id),
        "banned_ids": list(_ids([*words, *(said.suppress_tokens or ())])),
        "first_banned_ids": list(_ids(said.begin_suppress_tokens)),
        "speech": None if speech is None else speech.model_dump(mode="json"),
    }


def _ids(value: int | list[int] | None) -> tuple[int, ...]:
    """One, several or no tokens. A negative id means none."""
    several = value if isinstance(value, list) else [-1 if value is None else value]
    return tuple(token for token in several if token >= 0)


def _id(value: int | list[int] | None) -> int | None:
    return next(iter(_ids(value)), None)


def write_generation(config: GenerationConfig, *, encoder_decoder: bool) -> JsonObject:
    """The content of generation_config.json, from which `read_generation` restores these settings."""
    default = GenerationConfig()
    changed = {name: value for name, value in dict(config).items() if value != dict(default)[name]}
    samples = config.temperature > 0
    banned: list[JsonValue] = list(config.banned_ids)
    # The reference library never treats an end token as a bad word, but can suppress it.
    suppresses = bool(set(config.banned_ids) & set(config.end_ids)) or config.speech is not None
    fields: JsonObject = {
        "decoder_start_token_id" if encoder_decoder else "bos_token_id": config.start_id,
        "eos_token_id": config.end_ids[0] if len(config.end_ids) == 1 else list(config.end_ids) or None,
        "suppress_tokens": banned if suppresses else None,
        "bad_words_ids": [[token] for token in banned] or None if not suppresses else None,
        "begin_suppress_tokens": list(config.first_banned_ids) or None,
        **write_speech(config.speech),
        "max_new_tokens": None if config.max_length is not None else config.max_new_tokens,
        "max_length": config.max_length,
        "min_length": config.min_length,
        "do_sample": samples,  # Unsaid, some pipelines of the reference library sample.
        "top_k": (config.top_k or 0) if samples else None,
        **{theirs: changed.get(ours) for theirs, ours in SAME.items()},
    }
    return {name: value for name, value in fields.items() if value is not None}
