"""The Transformer of 2017 as trained here, opened by another library: the same function, and the way back."""

import json

import pytest
import torch

from clearhead.api import Model, load
from clearhead.checkpoints.families import family_for, preset
from clearhead.checkpoints.families.family import canonical
from clearhead.config import Init, ModelConfig
from clearhead.generation import complete
from clearhead.model import Tokens, Transformer
from clearhead.recipe.generation import GenerationConfig
from clearhead.storage.tensors import model_tensors

START, END, PAD = 1, 2, 3
SOURCES = [[11, 12, 13, 14, 15, 2], [21, 22, 2], [31, 32, 33, 2]]


def small(name: str, **changes: object) -> ModelConfig:
    """A preset with a vocabulary for tests."""
    tables = preset(name).model_dump(mode="json")
    for stack in ("encoder", "decoder"):
        if tables[stack] is None:
            continue
        tables[stack]["input"]["vocab_size"] = 50
        tables[stack] |= {"d_model": 32, "d_ff": 48, "n_heads": 4, "n_layers": 2, **changes}
    return ModelConfig.model_validate(tables)


def trained(config: ModelConfig) -> Model:
    """A network whose every weight is random, in float64."""
    torch.manual_seed(3)
    network = Transformer(config).double()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            noise = torch.randn_like(parameter)
            if parameter.ndim == 1:
                parameter.copy_(0.3 * noise + (0 if name.endswith("bias") else 1))
            else:
                parameter.copy_(noise * 2 * parameter.shape[-1] ** -0.5)
    generation = GenerationConfig(start_id=START, end_ids=(END,), pad_id=PAD, max_new_tokens=20, no_repeat_ngram=2)
    return Model(network, generation=generation)


CONFIGS = {
    "demo": (small("demo"), "MarianMTModel"),
    "transformer-base": (small("transformer-base"), "MarianMTModel"),
    "transformer-tiny": (small("transformer-tiny"), "MarianMTModel"),
    "pre-norm": (small("demo", norm_place="pre"), "PegasusForConditionalGeneration"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_opens_elsewhere_as_the_same_function(name: str, tmp_path):
    transformers = pytest.importorskip("transformers")
    config, architecture = CONFIGS[name]
    model = trained(config)
    model.save(tmp_path / "m")
    theirs, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        tmp_path / "m", output_loading_info=True, dtype=torch.float64
    )
    assert type(theirs).__name__ == architecture
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    source, target = Tokens.pad(SOURCES, fill=PAD), torch.randint(4, 50, (3, 6))
    assert source.valid is not None
    with torch.no_grad():
        expected = theirs(input_ids=source.ids, attention_mask=source.valid.long(), decoder_input_ids=target).logits
        found = model.network.eval()(source, Tokens(target))
    # Their sines are in float32, whatever the weights are.
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)

    for beams in (1, 4):
        settings = model.generation.model_copy(update={"beams": beams})
        ours = [list(best[0].tokens) for best in complete(model.network, source=SOURCES, config=settings)]
        texts = theirs.generate(source.ids, attention_mask=source.valid.long(), num_beams=beams)[:, 1:].tolist()
        assert [text[: len(t)] for text, t in zip(texts, ours, strict=True)] == ours
        assert all(set(text[len(t) :]) <= {PAD, END} for text, t in zip(texts, ours, strict=True))


@pytest.mark.parametrize("name", CONFIGS)
def test_comes_back_as_it_went(name: str, tmp_path):
    config, _ = CONFIGS[name]
    model = trained(config)
    model.save(tmp_path / "m")
    back = load(tmp_path / "m")
    assert back.config.model_copy(update={"init": Init()}) == config.model_copy(update={"init": Init()})
    assert back.generation == model.generation
    tensors = model_tensors(back.network)
    for key, tensor in model_tensors(model.network).items():
        assert torch.equal(tensors[key], tensor), key
    document = json.loads((tmp_path / "m" / "config.json").read_text())
    assert document["sinusoidal_layout"] == "interleaved"
    assert document["final_logits_bias"] is False


@pytest.mark.parametrize(
    "changes",
    [{"norm_eps": 1e-6}, {"norm": "rms"}, {"bias": False}, {"positions": {"kind": "sinusoidal", "base": 500.0}}],
    ids=str,
)
def test_what_other_libraries_do_not_have_stays_ours(changes: dict[str, object]):
    assert family_for(small("demo", **changes)) is None


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("nano", "ArceeForCausalLM"),
        ("llama-tiny", "LlamaForCausalLM"),
        ("gpt2", "GPT2LMHeadModel"),
        ("gpt2-medium", "GPT2LMHeadModel"),
    ],
)
def test_our_own_decoders_open_elsewhere(name: str, architecture: str, tmp_path):
    transformers = pytest.importorskip("transformers")
    model = trained(small(name))
    model.network.float().eval()
    model.save(tmp_path / "saved")
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert type(theirs).__name__ == architecture
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    ids = torch.randint(0, 50, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(theirs.eval()(ids).logits, model.network(Tokens(ids)), rtol=1e-5, atol=1e-5)
    assert canonical(load(tmp_path / "saved").config) == canonical(small(name))
