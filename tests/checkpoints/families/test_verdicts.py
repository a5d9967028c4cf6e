"""Every config gets a verdict: what opens, which head does not, which mechanism is missing, and what works instead."""

import json
import random
from typing import Any

import pytest

from clearhead.checkpoints.families import families
from clearhead.checkpoints.families.unknown import MECHANISMS, signs
from clearhead.checkpoints.families.verdicts import BUT_FOR_A_HEAD, DOES_NOT_OPEN, OPENS, verdict
from tests.api.test_load_fuzz import changed
from tests.checkpoints.families.hub import CONFIGS

NOWHERE: dict[str, Any] = {"model_type": "nowhere"}


def judge(document: dict[str, Any]) -> Any:
    return verdict(document, where="config.json")


@pytest.mark.parametrize("both_ways", [None, False, True])
def test_of_several_families_of_a_type_the_one_that_the_config_names(both_ways: bool | None):
    document = {"model_type": "gemma3_text", "use_bidirectional_attention": both_ways}
    found = judge({**document, "architectures": ["Gemma3TextModel" if both_ways else "Gemma3ForCausalLM"]})
    assert (found.kind, found.config and found.config.decoder is None) == (OPENS, both_ways or False)


def test_a_head_without_a_table_leaves_the_network():
    found = judge({**CONFIGS["gpt2_medium"], "architectures": ["GPT2ForMultipleChoice"]})
    assert found.kind == BUT_FOR_A_HEAD
    assert found.missing[0].field == "architectures"
    assert " opens; so do " in found.instead
    assert all(head.architecture in found.instead for head in families()[0].heads)
    assert found.error.startswith("config.json:architectures: expected one of")


def test_a_refused_value_names_its_field_and_what_is_expected():
    found = judge({**CONFIGS["llama_3_2"], "rope_scaling": {"rope_type": "proportional", "factor": 2.0}})
    assert (found.kind, found.architecture) == (DOES_NOT_OPEN, "LlamaForCausalLM")
    assert found.error.startswith("config.json:rope_parameters: expected rope_type default, ")
    assert found.instead.startswith("llama opens where ")


def test_quantized_weights_leave_the_checkpoint_they_were_made_from():
    found = judge({**CONFIGS["llama_3_2"], "quantization_config": {"quant_method": "of nobody", "bits": 4}})
    assert found.kind == DOES_NOT_OPEN
    assert found.missing[0].field == "quantization_config"
    assert found.instead == "the checkpoint it was made from"


@pytest.mark.parametrize(
    ("fields", "mechanism", "said"),
    [
        ({"layer_types": ["chunked_attention", "full_attention"]}, "sparse attention", "2 values"),
        ({"bbox_cost": 5, "num_queries": 100}, "detection, segmentation or depth", "num_queries=100"),
        ({"retrieval_vector_size": 768}, "retrieval from an index of passages", "retrieval_vector_size=768"),
    ],
)
def test_an_unknown_architecture_is_told_by_its_mechanism(fields: dict[str, Any], mechanism: str, said: str):
    found = judge({**NOWHERE, **fields})
    assert found.kind == DOES_NOT_OPEN
    assert found.missing[0].mechanism == mechanism
    assert f"got 'nowhere', which needs {mechanism} (" in found.error
    assert said in found.error


@pytest.mark.parametrize(
    "fields", [{"num_local_experts": 1}, {"ssm_state_size": 0}, {"num_queries": None}, {"depths": []}]
)
def test_a_field_that_is_off_says_nothing(fields: dict[str, Any]):
    assert signs(fields) == []


def test_fields_of_no_known_mechanism_are_listed_beside_the_nearest_table():
    document = {**CONFIGS["llama_3_2"], "model_type": "nowhere", "whorl": 3, "rope_scaling": None}
    found = judge(document)
    assert found.not_understood == ("whorl",)
    assert "whose fields whorl no table here reads; the nearest that opens is " in found.error


def test_a_config_without_its_type_is_told_which_it_fits():
    document = {name: value for name, value in CONFIGS["gpt2_medium"].items() if name != "model_type"}
    assert judge(document).error.endswith('all its fields are those of gpt2; if it is one, try "model_type": "gpt2"')


def test_a_network_within_a_network_is_judged_too():
    found = judge({**NOWHERE, "text_config": CONFIGS["llama_3_2"], "vision_config": {"model_type": "elsewhere"}})
    assert {name: part.kind for name, part in found.parts.items()} == {
        "text_config": OPENS,
        "vision_config": DOES_NOT_OPEN,
    }
    assert "its text_config (llama) opens" in found.instead


def test_no_mechanism_is_missing_that_a_family_has():
    """A config of a known family opens, so that none of its mechanisms may be called missing under another name."""
    for family in families():
        fields = {entry.theirs: 8 for entry in family.map_of(family.heads[0]).fields()}
        assert judge({**NOWHERE, **fields}).missing == (), family.model_type


def test_every_mechanism_is_told_by_each_of_its_fields():
    for mechanism in MECHANISMS:
        for name in mechanism.fields:
            value = [mechanism.words[0]] if mechanism.words else 10**6
            assert mechanism.name in [sign.mechanism for sign in signs({name: value})]


# --- whatever the config ---------------------------------------------------------------------------------------------

WORLD = [
    CONFIGS["llama_3_2"],
    CONFIGS["gpt2_medium"],
    CONFIGS["qwen3"],
    {**NOWHERE, "text_config": CONFIGS["llama_3_2"], "num_experts": 8},
]


def test_any_config_has_a_verdict():
    chance = random.Random(0)
    kinds = set[str]()
    for i in range(150):
        document = dict(chance.choice(WORLD)) | dict.fromkeys(chance.sample(FIELDS, 2), chance.choice(VALUES))
        try:
            document = json.loads(changed(document, chance))
        except ValueError:
            continue
        found = judge(document)
        kinds.add(found.kind)
        assert bool(found.error) is (found.kind != OPENS), i
        assert found.error.isprintable()
        assert len(found.error) < 2000
        assert found.instead or found.kind == OPENS
    assert kinds == {OPENS, BUT_FOR_A_HEAD, DOES_NOT_OPEN}


FIELDS = [name for mechanism in MECHANISMS for name in mechanism.fields] + ["architectures", "model_type", "num_labels"]
VALUES: list[Any] = [
    8,
    [1, "mamba"],
    {"model_type": ["x"]},
    {"model_type": "llama"},
    "linear",
    None,
    {},
    [[]],
    1e300,
    True,
]


def test_two_towers_open_together():
    clip = {"model_type": "clip", "architectures": ["CLIPModel"], "projection_dim": 8}
    found = judge(clip)
    assert (found.kind, found.architecture) == (OPENS, "CLIPModel")
    assert {part.kind for part in found.parts.values()} == {OPENS}
    found = judge({**clip, "vision_config": {"hidden_act": "mish"}})
    assert (found.kind, found.missing[0].field) == (DOES_NOT_OPEN, "hidden_act")
    assert found.parts["text_config"].kind == OPENS
    found = judge({**clip, "architectures": ["CLIPForImageClassification"]})
    assert (found.kind, found.instead) == (DOES_NOT_OPEN, "CLIPModel opens")


@pytest.mark.parametrize(("model_type", "right"), [("gpt2", True), ("bert", False), ("dinov2", False), ("bart", None)])
def test_causality_is_that_of_the_stacks(model_type: str, right: bool | None):
    """Shared code of the reference reads the field in every class, where no mask says otherwise."""
    for value in (True, False):
        found = judge({"model_type": model_type, "is_causal": value})
        assert (found.kind == OPENS) is (value is right)
        assert found.kind == OPENS or found.missing[0].field == "is_causal"
