import json
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import Model
from clearhead.cli.share.formats import quiet
from clearhead.config import ClassificationHead, LanguageHead
from clearhead.errors import NumericError, UserError
from clearhead.model import Transformer
from tests.later import later
from tests.shell import Shell
from tests.small_models import PAIRS, model_of

ctranslate2, ours = later("ctranslate2"), later("clearhead.cli.share.ctranslate2")
later("transformers")


QUIET = {"compute_type": "float32", "intra_threads": 1}


def lively(name: str, *, seed: int = 0) -> Model:
    """A small model whose greedy texts depend on what it reads."""
    model = model_of(name, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.network.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_gain = "norm" in name and name.endswith("weight")
            scale = 0.3 if parameter.ndim == 1 else 2 * parameter.shape[-1] ** -0.5
            parameter.copy_(noise * scale + float(is_gain))
    return model


def converted(model: Model, folder: Path, weights: str = "float32") -> float:
    """Its difference from ours."""
    folder.mkdir()
    with quiet():
        return ours.convert(model, folder, weights, name="model")


def their_translations(model: Model, folder: Path, texts: list[str]) -> list[list[int]]:
    """Greedy, by CTranslate2, in ids."""
    vocabulary = json.loads((folder / "shared_vocabulary.json").read_bytes())
    sources = [[vocabulary[i] for i in row] for row in model.tokenizer.encode_batch(texts, eos=True)]
    translator = ctranslate2.Translator(str(folder), **QUIET)
    found = translator.translate_batch(sources, beam_size=1, min_decoding_length=0, max_decoding_length=8)
    return [[vocabulary.index(word) for word in one.hypotheses[0]] for one in found]


def our_translations(model: Model, texts: list[str]) -> list[list[int]]:
    """The same, by us, without the end."""
    greedy = model.generation.model_copy(update={"beams": 1, "n_best": 1})
    ends = {model.tokenizer.eos_id}
    return [[i for i in best[0].tokens if i not in ends] for best in model.hypotheses(texts, greedy)]


def test_translations_are_the_same(tmp_path):
    model = lively("demo", seed=3)
    assert 0 < converted(model, tmp_path / "out") < 1e-5
    texts = list(PAIRS.source)
    expected = our_translations(model, texts)
    assert their_translations(model, tmp_path / "out", texts) == expected
    assert len({tuple(row) for row in expected}) > 5, "they say different things"


@pytest.mark.parametrize("name", ["gpt2", "llama-tiny", "nano"])
def test_continuations_are_the_same(tmp_path, name: str):
    model = lively(name)
    assert 0 < converted(model, tmp_path / "out") < 1e-5
    vocabulary = json.loads((tmp_path / "out" / "vocabulary.json").read_bytes())
    generator = ctranslate2.Generator(str(tmp_path / "out"), **QUIET)
    said = set[str]()
    for prompt in PAIRS.source:
        ids = model.tokenizer.encode(prompt)
        greedy = model.generation.model_copy(update={"beams": 1, "temperature": 0.0})
        theirs = generator.generate_batch(
            [[vocabulary[i] for i in ids]],
            beam_size=1,
            sampling_topk=1,
            max_length=greedy.max_new_tokens,
            include_prompt_in_result=False,
        )
        text = model.tokenizer.decode(theirs[0].sequences_ids[0])
        assert text.split() == model.generate(prompt, greedy).split()
        said.add(text)
    assert len(said) > 10


def test_an_encoder(tmp_path):
    from clearhead.config import NoHead

    model = model_of("bert-base")
    network = Transformer(model.config.model_copy(update={"head": NoHead(pooler=True)}))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    assert 0 < converted(Model(network.eval(), model.tokenizer), tmp_path / "out") < 1e-5


@pytest.mark.parametrize(("weights", "limit"), [("int8", 0.1), ("float16", 0.01), ("bfloat16", 0.05)])
def test_fewer_bits(tmp_path, weights: str, limit: float):
    model = model_of("demo")
    exact, fewer = converted(model, tmp_path / "exact"), converted(model, tmp_path / "fewer", weights)
    assert exact < fewer < limit
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("exact", "fewer")]
    assert sizes[1] < 0.9 * sizes[0]


def test_another_network_is_not_close(tmp_path):
    converted(model_of("demo"), tmp_path / "out")
    assert ours.difference(model_of("demo", seed=1), tmp_path / "out") > 0.1


# --- what cannot be converted -------------------------------------------------------------------------------------


def test_unknown_to_the_converter(tmp_path):
    model = model_of("nano", positions={"kind": "rotary", "scaling": {"kind": "linear", "factor": 2.0}})
    with pytest.raises(
        UserError, match=r"^model: expected a model that CTranslate2 .* converts, got ValueError: No "
    ) as e:
        converted(model, tmp_path / "out")
    assert "\n" not in str(e.value)
    assert str(e.value).endswith("try --to onnx")


def test_what_it_would_do_wrong_is_not_written(tmp_path, shell: Shell):
    """It takes the encoder's number of heads for both stacks."""
    model = model_of("demo")
    encoder = model.config.encoder
    assert encoder is not None
    config = model.config.model_copy(update={"encoder": encoder.model_copy(update={"n_heads": 4})})
    network = Transformer(config)
    network.load_state_dict(model.network.state_dict())
    Model(network.eval(), model.tokenizer, model.generation).save(tmp_path / "model")
    said = shell("export", "model", "--to", "ctranslate2")
    assert said.code == NumericError.exit_code
    assert "nothing written, for CTranslate2 cannot express it; try --to onnx" in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("gpt2", {"head": ClassificationHead(n_labels=2)}, "expected a language head, got a classification head"),
        ("bert-base", {"head": LanguageHead()}, "expected an encoder without a head, as CTranslate2 has them, got one"),
    ],
)
def test_heads_it_would_leave_out(name: str, changes: dict[str, Any], says: str):
    model = model_of(name)
    other = Model(Transformer(model.config.model_copy(update=changes)), model.tokenizer)
    with pytest.raises(UserError, match=says):
        ours.refuse(other, "model")


def test_a_tokenizer_is_needed():
    with pytest.raises(UserError, match="expected a tokenizer with the model"):
        ours.refuse(Model(model_of("gpt2").network), "model")


def test_its_class():
    classes = [ours.reader(model_of(name)) for name in ("demo", "gpt2", "bert-base")]
    assert classes == ["Translator", "Generator", "Encoder"]
