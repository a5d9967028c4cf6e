"""Configs of the hub are read as the reference reads them and written back; what is not supported is refused."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from clearhead.checkpoints.families import family_for, family_of, preset
from clearhead.checkpoints.families.decoders.gpt import GPTJ_FIELDS
from clearhead.checkpoints.families.family import canonical
from clearhead.checkpoints.weights.fields import Field
from clearhead.config import (
    ClassificationHead,
    LanguageHead,
    Learned,
    LearnedGrid,
    LinearScaling,
    LongScaling,
    ModelConfig,
    NoPositions,
    PatchInput,
    Rotary,
    Sinusoidal,
    StackConfig,
    TaggingHead,
    WavelengthScaling,
    YarnScaling,
)
from clearhead.config.positions import Disentangled
from clearhead.errors import UserError
from tests.checkpoints.families.hub import CONFIGS
from tests.later import later

transformers = later("transformers")

FULL, LOCAL = "full_attention", "sliding_attention"
OLDER = ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta")
REFUSED = [
    (name, changes, message)
    for name, cases in tomllib.loads(Path(__file__).with_name("refusals.toml").read_text(encoding="utf-8")).items()
    for changes, message in cases
]


def document_of(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """A config of the hub, or one of this model type, with changed fields; "null" stands for none, "absent" removes."""
    document = CONFIGS.get(name, {"model_type": name}) | changes
    return {field: None if value == "null" else value for field, value in document.items() if value != "absent"}


def read(name: str, **changes: Any) -> ModelConfig:
    document = document_of(name, changes)
    return family_of(document, where="c").read(document, where="c")[0]


def written(config: ModelConfig, model_type: str | None = None) -> dict[str, Any]:
    found = family_for(config, model_type)
    assert found is not None
    assert model_type in (None, found[0].model_type)
    return found[2]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_of_the_hub_is_read_whole_as_by_the_reference_and_written_back(name: str):
    document, config = CONFIGS[name], read(name)
    kind, family = document["model_type"], family_of(document, where="c")
    theirs = transformers.AutoConfig.for_model(kind).from_dict(document).to_dict()
    again = json.loads(json.dumps(theirs | {"architectures": document.get("architectures")}))
    assert family.read(again, where="c")[0] == config
    assert family.unknown(document, where="c") == []
    assert family.read(written(config, kind), where="c")[0] == config


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED)
def test_what_is_not_supported_is_refused_by_name(name: str, changes: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message) as caught:
        read(name, **changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("bert", {"architectures": ["BertForPreTraining"]}),
        ("mpt", {"architectures": ["MptForCausalLM"]}),
        ("vit", {"image_size": [224, 224], "patch_size": [16, 16]}),
        ("nllb", {"decoder_layerdrop": 0.05, "encoder_layerdrop": 0.05}),
        (
            "modernbert",
            dict.fromkeys(OLDER, "absent"),
        ),
    ],
)
def test_other_spellings_of_the_same_network(name: str, changes: dict[str, Any]):
    assert read(name, **changes) == read(name)


# --- positions -----------------------------------------------------------------------------------------------------

WAVES: dict[str, Any] = {"layout": "concatenated"}
YARN: dict[str, Any] = {"rope_type": "yarn", "original_max_position_embeddings": 512}
LINEAR = Rotary(base=500.0, scaling=LinearScaling(factor=2.0), trained_length=2048)


def yarn(**more: Any) -> Rotary:
    return Rotary(scaling=YarnScaling(factor=4.0, original_length=512, **more), trained_length=2048)


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("tiny_llama", {}, Rotary(trained_length=2048)),
        ("tiny_llama", {"rope_theta": 500_000}, Rotary(base=500_000.0, trained_length=2048)),
        ("tiny_llama", {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}}, LINEAR),
        ("tiny_llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}}, LINEAR),
        ("tiny_llama", {"rope_parameters": YARN}, yarn()),
        ("tiny_llama", {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}}, yarn(attention_factor=1.0)),
        (
            "llama_3_2",
            {},
            Rotary(
                base=500_000.0,
                scaling=WavelengthScaling(factor=32.0, original_length=8192),
                trained_length=131_072,
            ),
        ),
        (
            "qwen2_5",
            {"rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}},
            Rotary(base=1e6, scaling=YarnScaling(factor=4.0, original_length=32768), trained_length=32768),
        ),
        ("pythia", {}, Rotary(fraction=0.25, trained_length=2048)),
        (  # The library reads the family's own names alone.
            "pythia",
            {"rotary_pct": "absent", "partial_rotary_factor": 0.5, "rope_theta": 20.0},
            Rotary(fraction=0.25, trained_length=2048),
        ),
        ("modernbert", {"rope_parameters": {FULL: {"rope_theta": 500.0}}}, Rotary(base=500.0)),
        ("roberta", {}, Learned(max_length=512, offset=2)),
        ("roberta", {"pad_token_id": 0}, Learned(max_length=513, offset=1)),
        ("bart_mnli", {}, Learned(max_length=30, offset=2)),
        ("deberta_v3", {}, Disentangled(max_distance=512, n_buckets=256, shared=True, norm=True)),
        ("opus_mt", {}, Sinusoidal(**WAVES)),
        ("nllb", {}, Sinusoidal(**WAVES, base=10_000 ** (512 / 511), offset=2)),
        ("dinov2", {"image_size": 518, "patch_size": 14}, LearnedGrid(side=37)),
    ],
)
def test_positions(name: str, changes: dict[str, Any], expected: object):
    assert read(name, **changes).output.positions == expected


def test_angles_of_long_texts():
    factors = {"short_factor": [1.0, 2.0], "long_factor": [3.0, 4.0]}
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2}
    lengths = {"max_position_embeddings": 131_072, "original_max_position_embeddings": 4096}
    found = read("phi3", **sizes, **lengths, rope_scaling={"type": "su", **factors}).output.positions
    assert isinstance(found, Rotary)
    assert isinstance(found.scaling, LongScaling)
    assert (found.longest, found.scaling.divisors, found.scaling.longer) == (4096, (1.0, 2.0), (3.0, 4.0))
    assert found.scaling.attention_factor == pytest.approx(1.190, abs=1e-3)
    with pytest.raises(UserError, match="expected 2, half of the rotated components, got 3"):
        read("phi3", **sizes, **lengths, rope_scaling={"type": "su", **factors, "short_factor": [1.0, 2.0, 3.0]})


@pytest.mark.parametrize("spelling", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize(
    "scaling", [{"rope_type": "yarn"}, {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}]
)
def test_a_length_beside_the_angles_counts_before_the_one_in_them(spelling: str, scaling: dict[str, Any]):
    """As in the reference, of the kinds that know one; of others, and of tables by kind of layer, it does not."""

    def length(**fields: Any) -> int | None:
        return read("llama", **fields).output.positions.model_dump()["scaling"].get("original_length")

    table, name = {**scaling, "factor": 4.0}, "original_max_position_embeddings"
    assert length(**{spelling: table}) == 2048
    assert length(**{spelling: table, name: 8}) == 8
    assert length(**{spelling: {**table, name: 16}}) == 16
    assert length(**{spelling: {**table, name: 16}, name: 8}) == 8
    assert length(**{spelling: {"type": "dynamic", "factor": 4.0}, name: 8}) == 2048


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("tiny_llama", {}, 2048),
        ("tiny_llama", {"rope_scaling": YARN | {"factor": 4.0}}, 2048),
        ("llama_3_2", {}, 131_072),
        ("tiny_llama", {"max_position_embeddings": 256}, 256),
    ],
)
def test_the_longest_text_that_is_written(name: str, changes: dict[str, Any], expected: int):
    assert written(read(name, **changes), "llama")["max_position_embeddings"] == expected


def test_a_number_of_rotated_components_is_kept():
    field = next(one for one in GPTJ_FIELDS if isinstance(one, Field) and one.theirs == "rotary_dim")
    for width in range(1, 130):
        for rotated in range(1, width + 1):
            share = field.read(rotated, {"n_embd": width, "n_head": 1})
            assert Rotary(fraction=share).rotated(width) == rotated, width


# --- windows -------------------------------------------------------------------------------------------------------

QWEN = {"use_sliding_window": True, "sliding_window": 8, "num_hidden_layers": 3}


@pytest.mark.parametrize(
    ("name", "changes", "window", "layers", "said"),
    [
        ("mistral_0_1", {}, 4096, None, {}),
        ("mistral_0_1", {"sliding_window": "absent"}, 4096, None, {}),
        ("mistral_0_3", {}, None, None, {}),
        ("qwen3", QWEN | {"max_window_layers": 1}, 8, (1, 2), {"layer_types": [FULL, LOCAL, LOCAL]}),
        ("qwen3", QWEN | {"max_window_layers": 0}, 8, None, {"layer_types": [LOCAL] * 3, "max_window_layers": 0}),
        (
            "qwen3",
            QWEN | {"layer_types": [LOCAL, FULL, LOCAL]},
            8,
            (0, 2),
            {"layer_types": [LOCAL, FULL, LOCAL], "max_window_layers": 0, "use_sliding_window": True},
        ),
        ("qwen3", QWEN | {"layer_types": [LOCAL] * 3}, 8, None, {"layer_types": [LOCAL] * 3, "sliding_window": 8}),
        ("qwen2_5", QWEN | {"max_window_layers": 3}, None, None, {"use_sliding_window": False}),
        (
            "qwen2_5",
            QWEN | {"max_window_layers": 0, "layer_types": [FULL] * 3},
            None,
            None,
            {"layer_types": [FULL] * 3},
        ),
        ("qwen2_5", QWEN | {"max_window_layers": 0, "sliding_window": "null"}, None, None, {}),
        ("modernbert", {}, 65, tuple(i for i in range(22) if i % 3), {}),
        ("modernbert", {"layer_types": [LOCAL] * 21 + [FULL]}, 65, tuple(range(21)), {}),
        ("modernbert", {"global_attn_every_n_layers": 1}, None, None, {}),
        ("modernbert", {"layer_types": [LOCAL] * 22}, 65, None, {}),
        ("gemma3_text", {"use_bidirectional_attention": True, "num_hidden_layers": 2}, 2049, None, {}),
    ],
)
def test_layers_with_a_window(
    name: str, changes: dict[str, Any], window: int | None, layers: tuple[int, ...] | None, said: dict[str, Any]
):
    config = read(name, **changes)
    assert (config.output.window, config.output.window_layers) == (window, layers)
    document = written(config, document_of(name, {})["model_type"])
    assert said.items() <= document.items()
    again, _ = family_of(document, where="c").read(document, where="c")
    assert canonical(again) == canonical(config)


def test_angles_of_layers_with_a_window():
    bases = {"": (160_000.0, 10_000.0), "none": (160_000.0, None), "full": (160_000.0, None), "local": (10_000.0, None)}
    changes: dict[str, dict[str, Any]] = {
        "": {},
        "none": {"local_rope_theta": "null"},
        "full": {"global_attn_every_n_layers": 1},
        "local": {"layer_types": [LOCAL] * 22},
    }
    for kind, (base, local) in bases.items():
        stack = read("modernbert", **changes[kind]).output
        assert stack.positions == Rotary(base=base), kind
        assert stack.window_positions == (None if local is None else Rotary(base=local)), kind


def test_layers_that_do_not_rotate():
    smollm = read("smollm3").output
    assert smollm.rotary_layers == tuple(i for i in range(36) if (i + 1) % 4)
    cohere = read("cohere2", num_hidden_layers=5, sliding_window=8).output
    assert cohere.rotary_layers == cohere.window_layers == (0, 1, 2, 4)
    with pytest.raises(ValueError, match="needs rotary positions, got 'none'"):
        StackConfig.model_validate({**dict(smollm), "positions": NoPositions()})


# --- heads and the rest --------------------------------------------------------------------------------------------

EUROBERT = {"architectures": ["EuroBertForSequenceClassification"]}


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        (
            "bart_mnli",
            {},
            ClassificationHead(n_labels=3, labels=("contradiction", "neutral", "entailment"), pool="last", pooler=True),
        ),
        ("bart_summarizer", {}, LanguageHead(bias=True)),
        ("opus_mt", {}, LanguageHead(bias=True)),
        ("flan_t5", {"feed_forward_proj": "absent", "tie_word_embeddings": "absent"}, LanguageHead(scale=0.25)),
        ("vit", {}, ClassificationHead(n_labels=4, labels=("tench", "crane", "shark", "crane"))),
        *(
            (
                "eurobert",
                EUROBERT | {"classifier_pooling": name},
                ClassificationHead(n_labels=2, pool=pool, pools_last=last, pooler=True, pooler_activation="gelu"),
            )
            for name, pool, last in (("late", "mean", True), ("mean", "mean", False), ("bos", "first", False))
        ),
    ],
)
def test_heads(name: str, changes: dict[str, Any], expected: object):
    assert read(name, **changes).head == expected


def test_other_settings_of_published_networks():
    assert read("pythia").output.parallel == "two_norms"
    assert (read("opus_mt").output.activation, read("opus_mt").output.norm_place) == ("silu", "post")
    assert read("pegasus").output.has_final_norm
    assert read("deberta_v3").output.score_scale == pytest.approx((64 * 3) ** -0.5, rel=1e-7)
    original = read("flan_t5", feed_forward_proj="absent", tie_word_embeddings="absent").output
    assert (original.activation, original.gated, original.score_scale) == ("relu", False, 1.0)
    assert read("vit").output.input == PatchInput(image_size=224, patch_size=16)
    assert read("vit").output.max_length == 197
    base = read("dinov2", image_size=518, patch_size=14).output
    assert base.input == PatchInput(image_size=518, patch_size=14, mask_token=True)
    assert (base.d_ff, getattr(base.positions, "rows", None)) == (3072, 1370)
    giant = read("dinov2", hidden_size=1536, num_attention_heads=24, use_swiglu_ffn=True).output
    assert (giant.d_ff, giant.activation, giant.gated) == (4096, "silu", True)
    electra = read("electra_small")
    assert isinstance(electra.head, TaggingHead)
    assert (electra.output.embed_width, electra.output.d_model) == (128, 256)
    assert read("electra_small", embedding_size=256).output.embed_width == 256


def test_names_of_the_activation_that_differ_are_read_as_the_reference_reads_them():
    for fields in ({"dense_act_fn": "relu"}, {"dense_act_fn": "gelu", "is_gated_act": False}):
        stack, theirs = read("flan_t5", **fields).output, transformers.T5Config(**CONFIGS["flan_t5"] | fields)
        assert (stack.activation, stack.gated) == (theirs.dense_act_fn, theirs.is_gated_act)


def test_a_family_is_kept_when_it_is_saved_and_no_other_claims_it():
    for name in ("roberta", "xlm_roberta", "camembert"):
        assert written(read(name), CONFIGS[name]["model_type"])
        assert written(read(name))["model_type"] == "roberta"


def test_our_presets_are_those_of_the_hub():
    assert canonical(read("bert")) == canonical(preset("bert-base"))
    document = written(preset("gpt2"))
    assert [document[name] for name in ("embd_pdrop", "resid_pdrop", "attn_pdrop")] == [0.1, 0.1, 0.1]
