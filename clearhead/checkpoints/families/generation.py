"""Generation settings of the Hugging Face libraries, from generation_config.json or fields of config.json."""

import logging
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import (
    ConfigDict,
    Field,
    JsonValue,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from clearhead.checkpoints.families.speech import SpeechFields, read_speech, write_speech
from clearhead.config import Probability, Share
from clearhead.errors import UserError
from clearhead.recipe import explain
from clearhead.recipe.generation import Exponent, GenerationConfig, Several
from clearhead.recipe.names import schema_of

_log = logging.getLogger("clearhead")

FILE, LEGACY = "generation_config.json", "config.json"
TOP_K = 50
"""Default top_k of the reference library's sampling."""
SPECIAL = ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id")

# Fields that change no token: bookkeeping, additional outputs, and how tokens are computed.
IGNORED = (
    *("_*", "transformers_version", "output_*", "return_dict*", "use_cache", "cache_implementation", "cache_config"),
    *("max_cache_len", "compile_config", "disable_compile", "low_memory", "prefill_chunk_size", "use_mtp"),
    *("continuous_batching_config", "remove_invalid_values", "is_assistant", "assistant_*", "num_assistant_tokens*"),
    *("target_lookbehind", "speculation_type", "prompt_lookup_num_tokens", "max_matching_ngram_size"),
)

# Unsupported fields that change tokens -> the value at which each has no effect.
UNFOLLOWED: dict[str, JsonValue] = {
    "constraints": None,
    "diversity_penalty": 0.0,
    "dola_layers": None,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "exponential_decay_length_penalty": None,
    "force_words_ids": None,
    "guidance_scale": 1.0,
    "max_time": None,
    "num_beam_groups": 1,
    "penalty_alpha": None,
    "renormalize_logits": False,
    "sequence_bias": None,
    "stop_strings": None,
    "token_healing": False,
    "top_h": None,
    "typical_p": 1.0,
    "watermarking_config": None,
}


# Their fields -> ours, where values are the same.
SAME = {
    "min_new_tokens": "min_new_tokens",
    "num_return_sequences": "n_best",
    "num_beams": "beams",
    "length_penalty": "length_penalty",
    "early_stopping": "early_stopping",
    "temperature": "temperature",
    "top_p": "top_p",
    "min_p": "min_p",
    "seed": "seed",
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "pad_token_id": "pad_id",
    "forced_bos_token_id": "forced_first_id",
    "forced_eos_token_id": "forced_last_id",
}


Id = Annotated[int, Field(ge=-(2**31), lt=2**31)]
"""The id of a token. A negative value means none."""


class GenerationFields(SpeechFields):
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

    @property
    def samples(self) -> bool:
        """Whether tokens are sampled. Beam search never samples."""
        return bool(self.do_sample) and self.temperature != 0 and self.num_beams in (None, 1)

    @property
    def ends(self) -> tuple[int, ...]:
        """The end tokens."""
        return _ids(self.eos_token_id)


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
    """Whether a field that may change the output has no counterpart in our settings."""
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


def _lengths(said: GenerationFields, *, encoder_decoder: bool) -> dict[str, JsonValue]:
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


def _choice(said: GenerationFields) -> dict[str, JsonValue]:
    """The settings with the same values, and those of search or sampling."""
    found: dict[str, JsonValue] = {ours: getattr(said, theirs) for theirs, ours in SAME.items()}
    found["no_repeat_ngram"] = said.no_repeat_ngram_size or None
    if said.samples:
        found["temperature"] = 1.0 if said.temperature is None else said.temperature
        found["top_k"] = TOP_K if said.top_k is None else said.top_k or None
    else:
        found |= dict.fromkeys(("temperature", "top_p", "min_p"))
        found["n_best"] = min(said.num_return_sequences or 1, said.num_beams or 1)
    return {name: value for name, value in found.items() if value is not None}


def _tokens(said: GenerationFields, *, encoder_decoder: bool) -> dict[str, JsonValue]:
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


def write_generation(config: GenerationConfig, *, encoder_decoder: bool) -> dict[str, JsonValue]:
    """The content of generation_config.json, from which `read_generation` restores these settings."""
    default = GenerationConfig()
    changed = {name: value for name, value in dict(config).items() if value != dict(default)[name]}
    samples = config.temperature > 0
    banned: list[JsonValue] = list(config.banned_ids)
    # The reference library never treats an end token as a bad word, but can suppress it.
    suppresses = bool(set(config.banned_ids) & set(config.end_ids)) or config.speech is not None
    fields: dict[str, JsonValue] = {
        "decoder_start_token_id" if encoder_decoder else "bos_token_id": config.start_id,
        "eos_token_id": config.end_ids[0] if len(config.end_ids) == 1 else list(config.end_ids) or None,
        "suppress_tokens": banned if suppresses else None,
        "bad_words_ids": [[token] for token in banned] or None if not suppresses else None,
        "begin_suppress_tokens": list(config.first_banned_ids) or None,
        **write_speech(config.speech),
        "max_new_tokens": None if config.max_length is not None else config.max_new_tokens,
        "max_length": config.max_length,
        "min_length": config.min_length,
        "do_sample": samples or None,
        "top_k": (config.top_k or 0) if samples else None,
        **{theirs: changed.get(ours) for theirs, ours in SAME.items()},
    }
    return {name: value for name, value in fields.items() if value is not None}
