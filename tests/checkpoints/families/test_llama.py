"""What the comparison with the reference library cannot see: older spellings, refusals, and our own presets."""

from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import Model, load
from clearhead.checkpoints.families import family_for, family_of, preset
from clearhead.checkpoints.families.family import canonical
from clearhead.checkpoints.weights import mapping
from clearhead.config import LinearScaling, ModelConfig, Rotary, StackConfig, WavelengthScaling, YarnScaling
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from tests.checkpoints.families.hub import CONFIGS


def read(document: dict[str, Any]) -> ModelConfig:
    return family_of(document, where="config.json").read(document, where="config.json")[0]


def decoder(document: dict[str, Any]) -> StackConfig:
    stack = read(document).decoder
    assert stack is not None
    return stack


def positions(**changes: object) -> Rotary:
    found = decoder(CONFIGS["tiny_llama"] | changes).positions
    assert isinstance(found, Rotary)
    return found


@pytest.mark.parametrize(
    "document",
    [CONFIGS["llama_3_2"], CONFIGS["tiny_llama"], CONFIGS["smollm2"], CONFIGS["mistral_0_1"], CONFIGS["mistral_0_3"]],
    ids=["llama-3.2", "tinyllama", "smollm2", "mistral-0.1", "mistral-0.3"],
)
def test_configs_of_the_hub_read_as_the_reference_reads_them(document: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    kind = transformers.AutoConfig.for_model(document["model_type"])
    assert read(document) == read(kind.from_dict(document).to_dict() | {"architectures": document["architectures"]})
    found = family_for(read(document), document["model_type"])
    assert found is not None
    assert found[0].model_type == document["model_type"]
    assert read(found[2]) == read(document)


def test_window() -> None:
    assert decoder(CONFIGS["mistral_0_1"]).window == 4096
    assert decoder(CONFIGS["mistral_0_3"]).window is None
    without = {name: value for name, value in CONFIGS["mistral_0_1"].items() if name != "sliding_window"}
    assert decoder(without).window == 4096


def test_rotary_scaling_in_both_spellings() -> None:
    assert positions() == Rotary(trained_length=2048)
    assert positions(rope_theta=500_000) == Rotary(base=500_000.0, trained_length=2048)
    older = positions(rope_theta=500.0, rope_scaling={"type": "linear", "factor": 2.0})
    newer = positions(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0})
    assert older == newer == Rotary(base=500.0, scaling=LinearScaling(factor=2.0), trained_length=2048)
    waves = decoder(CONFIGS["llama_3_2"]).positions
    scaling = WavelengthScaling(factor=32.0, original_length=8192)
    assert waves == Rotary(base=500_000.0, scaling=scaling, trained_length=131_072)


def test_yarn_by_way_of_lengths_and_scales() -> None:
    yarn = {"rope_type": "yarn", "original_max_position_embeddings": 512}
    assert positions(rope_parameters=yarn).scaling == YarnScaling(factor=4.0, original_length=512)
    assert positions(rope_parameters={**yarn, "mscale": 1.0, "mscale_all_dim": 1.0}).scaling == YarnScaling(
        factor=4.0, original_length=512, attention_factor=1.0
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"rope_scaling": {"type": "ntk", "factor": 2.0}},
            "rope_parameters: .*linear, llama3, yarn, dynamic, got 'ntk'",
        ),
        ({"rope_parameters": {"rope_type": "longrope"}}, "rope_parameters: .* got 'longrope'"),
        ({"rope_parameters": {"mrope_section": [1, 1, 2]}}, "rope_parameters: expected no mrope_section="),
        ({"partial_rotary_factor": 0.5}, r"rope_parameters: expected no partial_rotary_factor=0\.5"),
        ({"rope_parameters": {"rope_type": "linear"}}, "rope_parameters.factor: expected a value"),
        ({"rope_parameters": "linear"}, "rope_parameters: expected a table, got 'linear'"),
        ({"rope_theta": 0.5}, "rope_theta: expected greater than 1, got 0"),
        ({"pretraining_tp": 2}, "pretraining_tp: expected 1, .* got 2"),
        ({"rope_interleaved": True}, "rope_interleaved: expected False, .* got True"),
        ({"hidden_act": "mish"}, "hidden_act: expected relu or .*, got 'mish'"),
        ({"num_attention_heads": 5}, r"config\.json"),
        ({"num_attention_heads": 0}, r"config\.json:head_dim|config\.json:num_"),
        ({"quantization_config": {"bits": 4}}, "quantization_config: expected plain weights or one of gptq, awq"),
        ({"architectures": ["LlamaForVision"]}, "architectures: expected one of LlamaForCausalLM, .*LlamaForVision"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read(CONFIGS["tiny_llama"] | changes)
    assert "\n" not in str(caught.value)


def small(name: str) -> ModelConfig:
    config = preset(name)
    assert config.decoder is not None
    sizes = {"d_model": 24, "n_layers": 2, "n_heads": 3, "d_ff": 40}
    reads = config.decoder.input.model_copy(update={"vocab_size": 50})
    return config.model_copy(update={"decoder": config.decoder.model_copy(update=sizes | {"input": reads})})


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("nano", "ArceeForCausalLM"),
        ("llama-tiny", "LlamaForCausalLM"),
        ("gpt2", "GPT2LMHeadModel"),
        ("gpt2-medium", "GPT2LMHeadModel"),
    ],
)
def test_our_own_decoders_open_elsewhere(name: str, architecture: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    found = family_for(preset(name))
    assert found is not None
    assert found[1].architecture == architecture
    network = Transformer(small(name)).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    Model(network).save(tmp_path / "saved")
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert type(theirs).__name__ == architecture
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    ids = torch.randint(0, 50, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(theirs.eval()(ids).logits, network(Tokens(ids)), rtol=1e-5, atol=1e-5)
        theirs.train()(ids)
    assert canonical(load(tmp_path / "saved").config) == canonical(small(name))


def test_dropouts_of_a_preset_are_written() -> None:
    found = family_for(preset("gpt2"))
    assert found is not None
    assert [found[2][name] for name in ("embd_pdrop", "resid_pdrop", "attn_pdrop")] == [0.1, 0.1, 0.1]


def test_the_longest_text_that_is_written() -> None:
    def written(document: dict[str, Any]) -> object:
        found = family_for(read(document), document["model_type"])
        assert found is not None
        return found[2]["max_position_embeddings"]

    assert written(CONFIGS["tiny_llama"]) == 2048
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
    assert written(CONFIGS["tiny_llama"] | {"rope_scaling": yarn}) == 2048
    assert written(CONFIGS["llama_3_2"]) == 131_072
    assert written(CONFIGS["tiny_llama"] | {"max_position_embeddings": 256}) == 256


def tensors(document: dict[str, Any]) -> dict[str, torch.Tensor]:
    config, head = family_of(document, where="").read(document, where="")
    network = Transformer(config)
    ours = {name: p.detach() for name, p in network.named_parameters()}
    return mapping.save(family_of(document, where="").table(config, head), ours)


def loaded(document: dict[str, Any], theirs: dict[str, torch.Tensor]) -> mapping.Loaded:
    config, head = family_of(document, where="").read(document, where="")
    return mapping.load(family_of(document, where="").table(config, head), theirs, where="folder")


def test_frequencies_that_older_versions_stored_are_ignored() -> None:
    theirs = tensors(CONFIGS["tiny_llama"])
    frequencies = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(4) for i in range(2)}
    found = loaded(CONFIGS["tiny_llama"], theirs | frequencies)
    assert found.tensors.keys() == loaded(CONFIGS["tiny_llama"], theirs).tensors.keys()
    assert not found.left_out


def test_a_tied_table_may_be_stored_twice_if_it_is_the_same() -> None:
    theirs = tensors(CONFIGS["llama_3_2"])
    assert "lm_head.weight" not in theirs
    table = theirs["model.embed_tokens.weight"]
    assert loaded(CONFIGS["llama_3_2"], theirs | {"lm_head.weight": table.clone()}).tensors.keys()
    with pytest.raises(UserError, match=r"folder:lm_head\.weight: expected the numbers of model\.embed_tokens\.weight"):
        loaded(CONFIGS["llama_3_2"], theirs | {"lm_head.weight": table + 1})
    only_copy = {name: tensor for name, tensor in theirs.items() if name != "model.embed_tokens.weight"}
    found = loaded(CONFIGS["llama_3_2"], only_copy | {"lm_head.weight": table})
    assert torch.equal(found.tensors["decoder.embed.tokens.weight"], table)


BANDS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize("spelling", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("scaling", [{"rope_type": "yarn"}, {"rope_type": "llama3", **BANDS}])
def test_a_length_beside_the_angles_counts_before_the_one_in_them(spelling: str, scaling: dict[str, object]) -> None:
    """As in the reference, of the kinds that know one; of others, and of tables by kind of layer, it does not."""

    def length(**fields: object) -> int | None:
        config, _ = family_of({"model_type": "llama"}, where="c").read(fields, where="c")
        assert config.decoder is not None
        return config.decoder.positions.model_dump()["scaling"].get("original_length")

    table = {**scaling, "factor": 4.0}
    assert length(**{spelling: table}) == 2048
    assert length(**{spelling: table}, original_max_position_embeddings=8) == 8
    within = {**table, "original_max_position_embeddings": 16}
    assert length(**{spelling: within}) == 16
    assert length(**{spelling: within}, original_max_position_embeddings=8) == 8
    assert length(**{spelling: {"type": "dynamic", "factor": 4.0}}, original_max_position_embeddings=8) == 2048
