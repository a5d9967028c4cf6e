"""The norm and the positions of examples/: trained, traced, explained, saved, loaded, and missed by name."""

import json
from typing import NamedTuple

import pytest

from tests.examples.packages import ROOT, install, run

RECIPE = """
task = "lm"
data = {{ train = {{ kind = "text", paths = ["text.txt"] }}, held_out = 0.2, length = 16 }}
tokenizer = {{ kind = "characters" }}
training = {{ steps = 4, max_tokens = 64 }}
model = {{ preset = "nano", stacks = {{ n_layers = 1, d_model = 16, n_heads = 2, d_ff = 32, {field} = {config} }} }}
"""
USE = """
import json, sys
import clearhead
from clearhead.explorer.answering.passes import Passes
from clearhead.explorer.answering.questions import RunRequest
from clearhead.explorer.recording.recording import recompute
model = clearhead.load(sys.argv[1])
seen = Passes(model, None, []).get(RunRequest(text="the cat"))
print(json.dumps({
    "addresses": list(model.trace("the cat")[0]),
    "difference": recompute(seen.recording).recompute_max_relative,
    "summary": str(model.summary()),
    "text": model.generate("the", max_new_tokens=4),
}))
"""


class Example(NamedTuple):
    """A mechanism of examples/, and what a network with it shows."""

    field: str
    kind: str
    settings: str
    address: str
    summary: str


EXAMPLES = {
    "norm": Example("norm", "p_norm", "p = 1.5", "decoder.blocks.0.attn_norm.scale", "norm"),
    "positions": Example("positions", "log_distance", "slope = 0.5", "decoder.blocks.0.attn.scores", "log_distance"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_mechanism_of_another_package(name: str, tmp_path):
    example, package = EXAMPLES[name], f"clearhead-example-{name}"
    kind, path = f"{package}.{example.kind}", install(name, tmp_path / "packages")
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 60)
    recipe = RECIPE.format(field=example.field, config=f'{{ kind = "{kind}", {example.settings} }}')
    (tmp_path / "recipe.toml").write_text(recipe)
    status, output = run("-m", "clearhead", "train", "recipe.toml", "--out", "run", path=path, cwd=tmp_path)
    assert status == 0, output

    status, output = run("-c", USE, "run", path=path, cwd=tmp_path)
    assert status == 0, output
    seen = json.loads(output.splitlines()[-1])
    assert example.address in seen["addresses"]
    assert seen["difference"] < 1e-5
    assert example.summary in seen["summary"]

    status, output = run("-m", "clearhead", "generate", "run", "the", cwd=tmp_path)
    assert (status, len(output.splitlines())) == (2, 1), output
    assert f"{example.field}: expected a mechanism that is installed, got {kind}; try pip install {package}" in output


def test_the_guide_shows_the_code_of_the_example():
    guide = (ROOT / "docs" / "extending" / "your-own-mechanism.md").read_text(encoding="utf-8")
    assert (ROOT / "examples" / "norm" / "clearhead_example_norm.py").read_text(encoding="utf-8").strip() in guide
