"""The family of examples/: opened from a folder of the reference library, saved, summarised, and missed by name."""

import json
from pathlib import Path

import pytest

from tests.examples.packages import ROOT, install, run
from tests.later import later

later("transformers")

USE = """
import json, sys
import torch, clearhead
from clearhead.checkpoints.families import presets
from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel
folder = sys.argv[1]
theirs = OpenAIGPTLMHeadModel(OpenAIGPTConfig(vocab_size=60, n_positions=16, n_embd=24, n_layer=2, n_head=3)).eval()
for weight in theirs.parameters():
    weight.data.normal_(0, 0.3)
theirs.save_pretrained(folder + "/theirs")
ids = torch.randint(60, (2, 9))
ours = clearhead.load(folder + "/theirs")
ours.save(folder + "/ours")
back, again = clearhead.load(folder + "/ours"), OpenAIGPTLMHeadModel.from_pretrained(folder + "/ours").eval()
from clearhead.model import Tokens
with torch.no_grad():
    first, expected = ours.network(Tokens(ids)), theirs(ids).logits
    print(json.dumps({
        "gap": (first - expected).abs().max().item() / max(1.0, expected.abs().max().item()),
        "equal": torch.equal(back.network(Tokens(ids)), first) and torch.equal(again(ids).logits, expected),
        "summary": str(back.summary()),
        "preset": presets()["openai-gpt-tiny"].decoder.d_ff,
    }))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    return install("family", tmp_path_factory.mktemp("package"))


def test_it_is_used_as_our_own(package: Path, tmp_path):
    code, output = run("-c", USE, str(tmp_path), path=package)
    assert code == 0, output
    shown = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    assert shown["gap"] < 1e-5
    assert shown["equal"]
    assert "decoder" in shown["summary"]
    assert shown["preset"] == 512
    code, output = run("-m", "clearhead", "check", str(tmp_path / "theirs"), path=package)
    assert code == 0, output
    code, output = run("-m", "clearhead", "check", str(tmp_path / "theirs"))
    assert (code, "got 'openai-gpt'" in output) == (2, True), "without the package"


def test_the_guide_shows_the_package():
    code = (ROOT / "examples/family/clearhead_example_family.py").read_text(encoding="utf-8")
    assert code in (ROOT / "docs/extending/your-own-family.md").read_text(encoding="utf-8")
