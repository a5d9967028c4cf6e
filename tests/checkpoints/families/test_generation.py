"""Generation settings in and out: read as the reference means them, written so that they read back equal."""

import json
import logging
import tomllib
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from hypothesis import settings as limits
from pydantic import ValidationError

from clearhead.checkpoints.families.generation import (
    FILE,
    IGNORED,
    UNFOLLOWED,
    GenerationFields,
    fnmatchcase,
    read_generation,
    write_generation,
)
from clearhead.errors import UserError
from clearhead.recipe.generation import GenerationConfig
from tests.later import later


def read(
    document: dict[str, Any] | None, model: dict[str, Any] | None = None, *, encoder_decoder: bool = True
) -> GenerationConfig:
    return read_generation(model or {}, document, encoder_decoder=encoder_decoder, where="folder")


def changes(config: GenerationConfig) -> dict[str, Any]:
    return {name: value for name, value in dict(config).items() if value != dict(GenerationConfig())[name]}


TABLES = tomllib.loads(Path(__file__).with_name("generation.toml").read_text(encoding="utf-8"))
TRANSLATOR, SUMMARIZER, CHATTER = TABLES["documents"].values()
KNOWN = {
    one["name"]: (TABLES["documents"].get(one["name"], one["document"]), one["encoder_decoder"], one["expected"])
    for one in TABLES["known"]
} | {"nulls": (dict.fromkeys([*GenerationFields.model_fields, *UNFOLLOWED]), True, {})}


@pytest.mark.parametrize("name", KNOWN)
def test_settings_are_read_as_meant(name: str):
    document, encoder_decoder, expected = KNOWN[name]
    found = changes(read(document, encoder_decoder=encoder_decoder))
    assert {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()} == expected


def test_the_model_config_speaks_where_there_is_no_file_of_its_own():
    model = SUMMARIZER | {"model_type": "x", "d_model": 16, "num_labels": 3, "seed": "?", "vocab_size": None}
    assert read(None, model) == read(SUMMARIZER)
    found = read({"max_new_tokens": 7, "eos_token_id": 9}, SUMMARIZER)
    assert changes(found) == {"max_new_tokens": 7, "start_id": 2, "end_ids": (9,), "pad_id": 1}
    older = {"bos_token_id": 0, "force_bos_token_to_be_generated": True}
    assert changes(read(None, older)) == {"start_id": 0, "forced_first_id": 0}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (TRANSLATOR, "renormalize_logits=True"),
        ({"typical_p": 0.9, "encoder_no_repeat_ngram_size": 3}, "typical_p=0.9, encoder_no_repeat_ngram_size=3"),
        ({"bad_words_ids": [[3], [4, 5]]}, "bad_words_ids=[[3], [4, 5]]"),
        ({"do_sample": True, "num_beams": 4}, "do_sample=True"),
        ({"num_return_sequences": 3}, "num_return_sequences=3"),
        ({"forced_eos_token_id": [2, 3]}, "forced_eos_token_id=[2, 3]"),
        ({"chat_format": "x" * 500}, "chat_format='xxx"),
    ],
)
def test_what_is_not_followed_is_told_in_one_line(document: dict[str, Any], told: str, caplog):
    with caplog.at_level(logging.WARNING, "clearhead"):
        read(document)
    [record] = caplog.records
    message = record.getMessage()
    assert message.startswith("folder/generation_config.json: ")
    assert told in message
    assert "\n" not in message
    assert len(message) < 250
    caplog.clear()
    with caplog.at_level(logging.WARNING, "clearhead"):
        read(None, document)
    assert [r.getMessage().startswith("folder/config.json: ") for r in caplog.records] == [True] * (
        "chat_format" not in document
    )


@pytest.mark.parametrize("encoder_decoder", [False, True])
def test_what_does_nothing_is_not_told(encoder_decoder: bool, caplog):
    document = SUMMARIZER | UNFOLLOWED | {"use_cache": False, "output_scores": True, "_from_model_config": True}
    with caplog.at_level(logging.WARNING, "clearhead"):
        read(document, encoder_decoder=encoder_decoder)
        read({"cache_implementation": "static", "assistant_lookbehind": 3, "return_dict_in_generate": True})
        read(None, SUMMARIZER | {"architectures": ["X"], "task_specific_params": {"max_length": 3}})
    assert not caplog.records


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_beams", "4"),
        ("num_beams", 0),
        ("max_new_tokens", 0),
        ("do_sample", "yes"),
        ("early_stopping", "always"),
        ("temperature", float("nan")),
        ("top_p", 0.0),
        ("repetition_penalty", 0.0),
        ("eos_token_id", [1, "2"]),
        ("pad_token_id", 0.5),
        ("bad_words_ids", [3]),
        ("forced_bos_token_id", [0]),
    ],
)
def test_a_value_of_the_wrong_type_is_named(field: str, value: object):
    for document, model, file in (({field: value}, None, "generation_config"), (None, {field: value}, "config")):
        with pytest.raises(UserError, match=f"^folder/{file}.json:{field}(.0)?: expected .*got ") as caught:
            read(document, model)
        assert "\n" not in str(caught.value)


def test_a_special_token_of_the_wrong_type_is_blamed_on_its_file():
    with pytest.raises(UserError, match=r"^folder/config.json:eos_token_id: "):
        read({"num_beams": 2}, {"eos_token_id": "</s>"})


ids = st.integers(0, 60_000)
settings = st.fixed_dictionaries(
    {},
    optional={
        "max_new_tokens": st.integers(1, 500),
        "min_new_tokens": st.integers(0, 20),
        "n_best": st.integers(1, 4),
        "beams": st.integers(1, 6),
        "length_penalty": st.floats(-2, 2),
        "early_stopping": st.sampled_from([True, False, "never"]),
        "temperature": st.sampled_from([0.0, 0.3, 1.0]),
        "top_k": st.none() | st.integers(1, 99),
        "top_p": st.none() | st.floats(0.01, 1.0),
        "min_p": st.none() | st.floats(0.0, 0.99),
        "seed": st.integers(0, 99),
        "repetition_penalty": st.floats(0.5, 2),
        "no_repeat_ngram": st.none() | st.integers(1, 4),
        "start_id": st.none() | ids,
        "end_ids": st.lists(ids, max_size=3),
        "pad_id": st.none() | ids,
        "forced_first_id": st.none() | ids,
        "forced_last_id": st.none() | ids,
        "banned_ids": st.lists(ids, max_size=3),
    },
)


@given(settings, st.booleans(), st.booleans())
def test_settings_written_read_back_equal(values: dict[str, Any], encoder_decoder: bool, ban_end: bool):
    if ban_end and values.get("end_ids"):
        values["banned_ids"] = [*values.get("banned_ids", ()), values["end_ids"][0]]
    try:
        config = GenerationConfig.model_validate(values)
    except ValidationError:
        return
    document = json.loads(json.dumps(write_generation(config, encoder_decoder=encoder_decoder)))
    assert read(document, encoder_decoder=encoder_decoder) == config


values = st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=3)
values = values | st.lists(values | st.lists(st.integers(-2, 9), max_size=2), max_size=3)


fields = st.sampled_from([*GenerationFields.model_fields, *UNFOLLOWED, "other"])


@given(st.dictionaries(fields, values, max_size=4), st.booleans())
@limits(max_examples=25)
def test_any_document_is_read_or_refused(document: dict[str, Any], encoder_decoder: bool):
    for pair in ((document, {}), (None, document)):
        try:
            read(*pair, encoder_decoder=encoder_decoder)
        except UserError as error:
            assert str(error).startswith("folder/")  # noqa: PT017


# --- against the transformers library -----------------------------------------------------------------------

transformers = later("transformers")


def test_every_field_of_the_library_is_known():
    names = {*transformers.GenerationConfig().to_dict(), *GenerationFields.model_fields} - {"transformers_version"}
    known = {name for name in names if name in GenerationFields.model_fields or name in UNFOLLOWED}
    ignored = {name for name in names if any(fnmatchcase(name, pattern) for pattern in IGNORED)}
    assert names == known | ignored
    assert not known & ignored
    defaults = transformers.GenerationConfig._get_default_generation_params()
    assert all(defaults.get(name) in (None, value) for name, value in UNFOLLOWED.items())


@pytest.mark.parametrize("document", [TRANSLATOR, SUMMARIZER, CHATTER], ids=["translator", "summarizer", "chatter"])
def test_the_library_opens_what_is_written(document: dict[str, Any], tmp_path):
    encoder_decoder = document is not CHATTER
    config = read(document, encoder_decoder=encoder_decoder)
    written = write_generation(config, encoder_decoder=encoder_decoder)
    (tmp_path / FILE).write_text(json.dumps(written), encoding="utf-8")
    theirs = transformers.GenerationConfig.from_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / FILE).read_text(encoding="utf-8"))
    assert read(saved, encoder_decoder=encoder_decoder) == config
    assert theirs.eos_token_id == document["eos_token_id"]
    if encoder_decoder:
        assert theirs.max_new_tokens == document["max_length"] - 1
        assert theirs.bad_words_ids == document.get("bad_words_ids")
