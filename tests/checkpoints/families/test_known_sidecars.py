"""Every field that the reference libraries read of files beside config.json, by their source, has an entry here."""

import json
from typing import Any

import pytest

from clearhead.api import sentences
from clearhead.api.sentences import KINDS
from clearhead.data import images, sounds
from clearhead.errors import UserError
from clearhead.recipe.tokenizers import ByteBPE
from clearhead.text.formats.classes import REFUSED, check_settings, table
from clearhead.text.tokenizers import Tokenizer

pytest.importorskip("transformers")
pytest.importorskip("peft")

from tests.reads import entries, sidecars


def test_fields_of_adapters():
    found = {name: sidecars.of_adapter(name) for name in sidecars.of_adapters()}
    assert {"r", "lora_alpha", "use_dora", "alpha_pattern", "layer_replication", "peft_type"} <= {*found}
    assert [name for name, what in found.items() if what == "none"] == []
    assert entries.listed("adapter") <= {*found}


def test_fields_of_generation_settings():
    found = {name: sidecars.of_setting(name) for name in sidecars.of_generation()}
    assert {"max_length", "top_k", "typical_p", "watermarking_config", "no_repeat_ngram_size"} <= {*found}
    assert [name for name, what in found.items() if what == "none"] == []
    assert entries.listed("generation") <= {*found}


def test_fields_of_tokenizers():
    found = {name: sidecars.of_token(name) for name in sidecars.of_tokenizers()}
    assert {"add_bos_token", "model_specific_special_tokens", "do_lower_case", "init_inputs"} <= {*found}
    assert [name for name, what in found.items() if what == "none"] == []
    assert entries.listed("tokenizers") | REFUSED.keys() <= {*found}


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        ("image", images.ImageConfig.of),
        ("sound", sounds.SoundConfig.read),
        ("wave", sounds.WaveConfig.read),
    ],
)
def test_fields_of_processors(kind: str, read: Any):
    """What is neither applied nor ignored by name is refused: so is a field that nobody knows."""
    found = {name: sidecars.of_processor(kind, name) for name in sidecars.of_processors(kind)}
    assert sum(what == "applied" for what in found.values()) >= 2
    for name in ["mystery", *(name for name, what in found.items() if what in ("refused", "one value"))]:
        with pytest.raises(UserError, match=name):
            read({"sampling_rate": 16000, name: 77} if kind != "image" else {name: 77}, where="p")


def test_fields_of_sentence_encoders():
    """Its modules refuse what they do not know, so each field that it reads must be known, or refused by name."""
    found = sidecars.of_sentences()
    whole = {*found["BaseModel"], *found["SentenceTransformer"]}
    assert whole <= {*sentences.OF_WHOLE}
    assert {"prompts", "default_prompt_name", "truncate_dim", "similarity_fn_name"} <= whole
    assert {*found["Transformer"]} - {"model_name_or_path", "tokenizer_name_or_path"} <= {
        *sentences.TextSettings.model_fields
    }
    assert {"Pooling", "Dense", "LayerNorm", "Normalize", "Dropout"} == {*KINDS}
    assert {"embedding_dimension", "include_prompt", "pooling_mode"} == {*found["Pooling"]}
    assert sentences.REFERENCE.endswith(sidecars.version_of_sentences())


@pytest.mark.parametrize("name", REFUSED)
def test_a_field_of_tokenizers_that_is_refused_is_named(name: str):
    kind = next(one for one in table().classes if not REFUSED[name] or {*REFUSED[name]} & {*one.names})
    check_settings({name: []}, kind, "folder")
    with pytest.raises(UserError, match=f"^folder/tokenizer_config.json:{name}: expected none, got x; "):
        check_settings({name: "x"}, kind, "folder")


def test_tokens_of_a_model_s_own(tmp_path):
    """A token that model_specific_special_tokens names is one token, as extra_special_tokens' are."""
    Tokenizer.train(["a man in a hat"], ByteBPE(vocab_size=300)).save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    settings = json.loads(path.read_text()) | {"split_special_tokens": False}
    for name in ("model_specific_special_tokens", "extra_special_tokens"):
        path.write_text(json.dumps(settings | {name: {"image_token": "<image>"}}))
        tokenizer = Tokenizer.load(tmp_path)
        assert len(tokenizer.encode("<image>")) == 1
