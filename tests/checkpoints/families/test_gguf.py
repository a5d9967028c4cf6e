"""Each architecture of GGUF, written by the format's own library, opens with the reference library's logits."""

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearhead.api import load
from clearhead.checkpoints.families.gguf import ARCHITECTURES, content_of, described
from clearhead.checkpoints.families.gguf_angles import wavelength_divisors
from clearhead.checkpoints.weights.gguf import GgufFile
from clearhead.cli.share.formats import quiet
from clearhead.model import Tokens
from tests import gguf_files
from tests.later import later
from tests.parity.cases import with_none

transformers: Any = later("transformers")
later("gguf")

TABLES = with_none(tomllib.loads(Path(__file__).with_name("gguf.toml").read_text(encoding="utf-8")))
COMMON: dict[str, Any] = TABLES["common"]
CASES: dict[str, dict[str, Any]] = TABLES["cases"]
FEW = ("biases", "wavelengths", "gpt2")
IDS = torch.tensor([[5, 17, 95, 3, 44, 44, 9, 30, 61, 8, 7, 6]])


def architecture(kind: str) -> str:
    """The name in a file of a class of the reference library."""
    return {"mistral": "llama", "gemma3text": "gemma3"}.get(kind.lower(), kind.lower())


def reference(name: str, folder: Path) -> Any:
    """The reference library's model, saved to the folder."""
    kind, fields = CASES[name]["kind"], CASES[name]["fields"]
    torch.manual_seed(0)
    with quiet():
        config = getattr(transformers, f"{kind}Config")(**(fields if kind == "GPT2" else COMMON | fields))
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        model.save_pretrained(folder)
    return model


def vectors(name: str) -> dict[str, tuple[Any, str]]:
    """The divisors of angles, which a file keeps as tensors."""
    rope = CASES[name]["fields"].get("rope_parameters", {})
    found = {f"rope_factors_{kind}.weight": rope.get(f"{kind}_factor") for kind in ("long", "short")}
    if rope.get("rope_type") == "llama3":
        known = (rope[f] for f in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"))
        found["rope_freqs.weight"] = wavelength_divisors(8, rope["rope_theta"], *known)
    return {name: (np.array(numbers, np.float32), "F32") for name, numbers in found.items() if numbers}


@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_logits_are_the_reference_library_s(name: str, tmp_path: Path) -> None:
    theirs, arch = reference(name, tmp_path / "model"), architecture(CASES[name]["kind"])
    said = CASES[name].get("said", {})
    path = gguf_files.convert(tmp_path / "model", tmp_path / "x.gguf", arch, said, more=vectors(name))
    with torch.no_grad():
        torch.testing.assert_close(load(path).network(Tokens(IDS)), theirs(IDS).logits, rtol=1e-5, atol=1e-5)


def test_every_architecture_has_a_case() -> None:
    assert {architecture(one["kind"]) for one in CASES.values()} == {one.name for one in ARCHITECTURES}


def test_a_half_precision_file_opens_in_its_type(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reference("plain", tmp_path / "model").half().save_pretrained(tmp_path / "model")
    path = gguf_files.convert(tmp_path / "model", tmp_path / "x.gguf", "llama", {}, kind="F16")
    found = dict(load(path).network.named_parameters())
    assert not caplog.records
    for name, parameter in load(tmp_path / "model").network.named_parameters():
        assert torch.equal(found[name], parameter), name


@pytest.mark.parametrize(("high", "original"), [(4.0, 8192), (3.0, 1000)])
def test_divisors_name_their_scaling(high: float, original: int, tmp_path: Path) -> None:
    """Files list the divisors; the numbers behind them are found, whichever they are."""
    reference("plain", tmp_path / "model")
    width, theta = 64, 500_000.0
    divisors = np.array(wavelength_divisors(width, theta, 32.0, 1.0, high, original), np.float32)
    sizes = dict.fromkeys(("attention.key_length", "attention.value_length", "rope.dimension_count"), width)
    said = {"rope.freq_base": theta, **sizes}
    more = {"rope_freqs.weight": (divisors, "F32")}
    path = gguf_files.convert(tmp_path / "model", tmp_path / "x.gguf", "llama", said, more=more)
    found = described(content_of(GgufFile.open(path)))[0]["rope_parameters"]
    assert json.dumps(found) == json.dumps({
        "rope_type": "llama3", "rope_theta": theta, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": high,
        "original_max_position_embeddings": original,
    })  # fmt: skip
