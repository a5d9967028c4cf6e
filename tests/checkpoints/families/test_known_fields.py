"""Every field that the reference library reads, by its source, has an entry here: what has none changes nothing."""

import json
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import pytest

from clearhead.checkpoints.families import Family, families, family_of
from clearhead.checkpoints.families.angles import ORIGINAL
from clearhead.checkpoints.families.decoders.fused import ATTENTION
from clearhead.checkpoints.families.family import REFERENCE
from clearhead.checkpoints.weights.fields import FieldMap, Only, ignored, same
from clearhead.errors import UserError
from tests.coverage import folders
from tests.coverage.outcome import outcome
from tests.later import later
from tests.parity.cases import DERIVED_REPRESENTATIVES, REPRESENTATIVES
from tests.parity.harness import Case
from tests.reads import entries, library

transformers = later("transformers")

PUBLISHED = [family for family in families() if not family.read_only]
CLASSES = sorted({head.architecture for one in families() if one.without or not one.read_only for head in one.heads})


def read_by(architecture: str) -> dict[str, frozenset[str]]:
    return library.fields(getattr(transformers, architecture))


BY_NAME = ("text_config", "text_encoder", "decoder", "generator", "decoder_sliding_window", "decoder_layer_types")
"""Fields that shared code finds by names that it computes."""


@pytest.mark.parametrize("architecture", CLASSES)
def test_each_field_that_the_reference_reads_has_an_entry(architecture: str):
    if not hasattr(transformers, architecture):
        pytest.skip("its code lies beside its checkpoints")
    config = getattr(transformers, architecture).config_class()
    names = {*config.to_dict(), *config.attribute_map} - {"_name_or_path"}
    for family, head in entries.published()[architecture]:
        missing = [name for name, at in read_by(architecture).items() if entries.what(family, head, name, at) == "none"]
        assert missing == []
        assert family.map_of(head).unknown(BY_NAME) == []
        if not family.without:
            assert family.map_of(head).unknown(names) == []


def test_what_is_read_is_found_in_the_source():
    """By attribute and `getattr`, in a base class, in shared code and in tables; not what other classes read."""
    llama, bert, neo = (read_by(name) for name in ("LlamaForCausalLM", "BertModel", "GPTNeoXModel"))
    assert {"rms_norm_eps", "head_dim", "sliding_window", "is_causal", ORIGINAL, "rope_parameters.factor"} <= {*llama}
    assert "layer_norm_eps" in bert
    assert "rotary_pct" in neo
    assert not {ORIGINAL, "rope_parameters.factor", "rms_norm_eps"} & {*bert}
    assert llama[ORIGINAL] == {library.ROTARY}


def test_a_field_that_is_read_and_has_no_entry_is_found():
    (family, head), *_ = entries.published()["LlamaForCausalLM"]
    fewer = replace(family, fields=tuple(one for one in family.fields if getattr(one, "theirs", "") != ORIGINAL))
    own = frozenset({"transformers.models.llama.modeling_llama"})
    assert entries.what(family, head, ORIGINAL, own) == "applied"
    assert entries.what(fewer, head, ORIGINAL, own) == "none"
    assert entries.what(family, head, "mtp_layer_types", own) == "none", "its own code reads it"
    assert entries.what(family, head, "mtp_layer_types", frozenset({"transformers.cache_utils"})) == "unread"


def test_what_is_listed_as_unread_is_read_by_some_class():
    read = {name.partition(".")[0] for one in CLASSES if hasattr(transformers, one) for name in read_by(one)}
    assert entries.listed("shared") | entries.listed("pictures") <= read
    assert f"transformers {version('transformers')}" == REFERENCE


@pytest.mark.parametrize("family", PUBLISHED, ids=lambda family: family.heads[0].architecture)
def test_a_table_of_angles_has_no_field_that_is_not_known(family: Family):
    """So each field of it that the reference reads is applied or refused."""
    config_class: Any = getattr(transformers, family.heads[0].architecture).config_class
    document = json.loads(config_class(**READABLE.get(family.heads[0].architecture, {})).to_json_string(use_diff=False))
    document["architectures"] = [family.heads[0].architecture]
    table = document.get("rope_parameters")
    if not isinstance(table, dict) or family.map_of(family.heads[0]).unknown(["rope_parameters"]):
        return
    inner = {kind: {**one, "mystery": 1} for kind, one in table.items() if isinstance(one, dict)}
    with pytest.raises(UserError, match="mystery"):
        family.read({**document, "rope_parameters": inner or {**table, "mystery": 1}}, where="c")


def test_each_field_of_attention_s_own_table_is_known():
    within = {name.removeprefix("attn_config.") for name in read_by("MptModel") if name.startswith("attn_config.")}
    assert within
    assert within <= {*ATTENTION}


def test_what_has_no_entry_is_unknown():
    fields = FieldMap((same("a", "x", default=1), Only("b", None), ignored("c_*")))
    assert fields.unknown(["a", "b", "c_1", "d"]) == ["d"]
    assert fields.read({"a": 2, "d": 5}, where="f") == {"x": 2}


READABLE: dict[str, dict[str, Any]] = {
    "Gemma3TextModel": {"use_bidirectional_attention": True},
    "Glm4MoeForCausalLM": {"head_dim": 128},
    "DeepseekV2ForCausalLM": {"num_experts_per_tok": 2},
    "Dots1ForCausalLM": {"n_routed_experts": 128, "num_experts_per_tok": 6, "n_shared_experts": 2},
    "EsmForMaskedLM": {"vocab_size": 33, "pad_token_id": 1},
    "LlavaForConditionalGeneration": {"image_token_index": 1},
    "Gemma3ForConditionalGeneration": {"mm_tokens_per_image": 49},
    "Idefics3ForConditionalGeneration": {"scale_factor": 7, "image_token_id": 1},
    "SmolVLMForConditionalGeneration": {"scale_factor": 7, "image_token_id": 1},
}
"""What classes need to be read, whose own defaults are no network here."""


@pytest.mark.parametrize("family", PUBLISHED, ids=lambda family: family.heads[0].architecture)
def test_an_absent_field_has_the_reference_s_default(family: Family):
    head = family.heads[0]
    config_class: Any = getattr(transformers, head.architecture).config_class
    needed = READABLE.get(head.architecture, {})
    document = {**config_class(**needed).to_dict(), "architectures": [head.architecture]}
    whole = family.read(document, where="c")
    # What is None by default follows there from other fields, as it does here.
    derived = {name for name in document if name in vars(config_class) and vars(config_class)[name] is None}
    for name in sorted({field.theirs for field in family.map_of(head).fields()} - derived - needed.keys()):
        absent = {key: value for key, value in document.items() if key != name}
        assert family.read(absent, where="c") == whole, name


@pytest.mark.parametrize("case", [*REPRESENTATIVES, *DERIVED_REPRESENTATIVES], ids=str)
def test_a_null_that_the_reference_refuses_is_refused(case: Case):
    config_class: Any = getattr(transformers, case.architecture).config_class
    document = {**config_class(**case.config).to_dict(), "architectures": [case.architecture]}
    family = family_of(document, where="c")
    mapped = {field.theirs for field in family.map_of(family.head_of(document, where="c")).fields()}
    for name in sorted(name for name in mapped if document.get(name) is not None):
        changed = {**document, name: None}
        try:
            family.read(changed, where="c")
        except UserError:
            continue
        config_class.from_dict(changed)


def test_yarn_whose_range_is_reversed(tmp_path):
    """An original length so short that the ramp ends before it begins: the reference divides by a negative span."""
    case = folders.tiny("llama", "LlamaForCausalLM")
    assert case is not None
    angles = {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 2, "rope_theta": 10.0}
    changed = replace(case, config={**case.config, "rope_parameters": angles})
    assert outcome(changed, tmp_path).what == "close"
