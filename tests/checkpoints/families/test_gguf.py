"""Each architecture of GGUF: out and back bit-equal, and opened by the reference library with equal logits."""

import logging
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import Model, load, pretrained
from clearhead.checkpoints.families.gguf import ARCHITECTURES, known
from clearhead.checkpoints.families.gguf_angles import wavelength_divisors
from clearhead.checkpoints.weights.gguf import GgufFile
from clearhead.cli.share.formats import quiet
from clearhead.cli.share.gguf import described_model, put, write
from clearhead.errors import UserError
from clearhead.model import Tokens
from tests.later import later
from tests.parity.cases import with_none

transformers: Any = later("transformers")
later("gguf")

TABLES = with_none(tomllib.loads(Path(__file__).with_name("gguf.toml").read_text(encoding="utf-8")))
COMMON: dict[str, Any] = TABLES["common"]
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    name: (one["kind"], one["fields"] if one["kind"] == "GPT2" else COMMON | one["fields"])
    for name, one in TABLES["cases"].items()
}
FEW = ("biases", "wavelengths", "gpt2")
JUDGED = ("llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "starcoder2", "gpt2")
"""The architectures that the reference library opens too."""
IDS = torch.tensor([[5, 17, 95, 3, 44, 44, 9, 30, 61, 8, 7, 6]])


def reference(name: str, folder: Path) -> Any:
    """The reference library's model, saved to the folder."""
    kind, fields = CASES[name]
    torch.manual_seed(0)
    with quiet():
        model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, f"{kind}Config")(**fields)).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        model.save_pretrained(folder)
    return model


def logits(model: Model) -> torch.Tensor:
    with torch.no_grad():
        return model.network(Tokens(IDS))


@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_out_and_back(name: str, tmp_path: Path) -> None:
    theirs = reference(name, tmp_path / "model")
    model, path = load(tmp_path / "model"), tmp_path / "x.gguf"
    before = logits(model)
    gap = write(model, path, "float32", name=name)
    assert gap <= (1e-6 if "gemma" in name else 0.0)  # Their norms are stored with 1 added.
    back = load(path)
    if "gemma" in name:
        torch.testing.assert_close(logits(back), before, rtol=1e-5, atol=1e-5)
    else:
        assert torch.equal(logits(back), before)
    file = GgufFile.open(path)
    if file.metadata["general.architecture"] not in JUDGED:
        return
    with quiet():
        judge = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path, gguf_file=path.name, config=None if name == "plain" else theirs.config, dtype=torch.float32
        )
    with torch.no_grad():
        torch.testing.assert_close(judge.eval()(IDS).logits, theirs(IDS).logits, rtol=1e-6, atol=1e-5)


def test_every_architecture_has_a_case(tmp_path: Path) -> None:
    kinds = {getattr(transformers, f"{kind}Config").model_type for kind, _ in CASES.values()}
    assert kinds == set(known())
    assert len({one.name for one in ARCHITECTURES}) == len(ARCHITECTURES)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "q8_0"])
def test_types_of_numbers(kind: str, tmp_path: Path) -> None:
    """What is stored is what the library makes of each matrix."""
    import gguf as library

    reference("plain", tmp_path / "model")
    write(load(tmp_path / "model"), tmp_path / "x.gguf", kind, name="x")
    _, tensors = described_model(load(tmp_path / "model"), "x")
    types = {"float16": "F16", "bfloat16": "BF16", "q8_0": "Q8_0"}
    for one in library.GGUFReader(tmp_path / "x.gguf").tensors:
        expected = types[kind] if len(one.shape) > 1 else "F32"
        assert one.tensor_type.name == expected
        stored = library.quants.quantize(tensors[one.name].numpy(), one.tensor_type)
        assert (one.data.view(stored.dtype) == stored).all()


def test_what_the_format_cannot_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CASES, "windowed", ("Mistral", COMMON | {"sliding_window": 4}))
    reference("windowed", tmp_path / "model")
    with pytest.raises(
        UserError,
        match=r"^x: expected a model of llama, .* with what GGUF can hold, got mistral with sliding_window=4; try --to",
    ):
        write(load(tmp_path / "model"), tmp_path / "x.gguf", "float32", name="x")


def test_a_half_precision_model_opens_in_its_type(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reference("plain", tmp_path / "model")
    model = load(tmp_path / "model", dtype="float16")
    before = {name: parameter.clone() for name, parameter in model.network.named_parameters()}
    write(model, tmp_path / "x.gguf", "float16", name="x")
    caplog.set_level(logging.WARNING)
    back = load(tmp_path / "x.gguf")
    assert not caplog.records
    after = dict(back.network.named_parameters())
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize(("high", "original"), [(4.0, 8192), (3.0, 1000)])
def test_divisors_name_their_scaling(high: float, original: int, tmp_path: Path) -> None:
    """Files list the divisors; the numbers behind them are found, whichever they are."""
    reference("plain", tmp_path / "model")
    made, tensors = described_model(load(tmp_path / "model"), "x")
    width, theta = 64, 500_000.0
    tensors["rope_freqs.weight"] = torch.tensor(wavelength_divisors(width, theta, 32.0, 1.0, high, original))
    metadata = made.metadata | {
        "llama.rope.freq_base": theta, "llama.attention.key_length": width, "llama.attention.value_length": width,
        "llama.rope.dimension_count": width,
    }  # fmt: skip
    put(tmp_path / "x.gguf", made.name, metadata, tensors, "float32")
    document, _ = pretrained.described(pretrained.content_of(GgufFile.open(tmp_path / "x.gguf")))
    found = document["rope_parameters"]
    told = (found["factor"], found["low_freq_factor"], found["high_freq_factor"])
    assert told == (32.0, 1.0, high)
    assert found["original_max_position_embeddings"] == original
