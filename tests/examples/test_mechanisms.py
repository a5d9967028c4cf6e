"""The guide's norm and positions: trained, traced, explained, saved, loaded, and missed by name."""

import json

from tests.examples.packages import follow, run

USE = """
import json
import clearhead
from clearhead.explorer.answering.passes import Passes
from clearhead.explorer.answering.questions import RunRequest
from clearhead.explorer.recording.recording import recompute
model = clearhead.load("run")
seen = Passes(model, None, []).get(RunRequest(text="mnop"))
print(json.dumps({
    "addresses": list(model.trace("mnop")[0]),
    "difference": recompute(seen.recording).recompute_max_relative,
    "summary": str(model.summary()),
}))
"""


def test_mechanisms_of_another_package(tmp_path):
    assert follow("mechanism", tmp_path) == ["mnopqrstuv"]
    status, output = run("-c", USE, path=tmp_path / "site", cwd=tmp_path)
    assert status == 0, output
    seen = json.loads(output.splitlines()[-1])
    assert {"decoder.blocks.0.attn_norm.scale", "decoder.blocks.0.attn.scores"} <= {*seen["addresses"]}
    assert seen["difference"] < 1e-5
    assert "log_distance" in seen["summary"]

    status, output = run("-m", "clearhead", "generate", "run", "the", cwd=tmp_path)
    assert (status, len(output.splitlines())) == (2, 1), output
    package = "clearhead-example-mechanism"
    assert f": expected a mechanism that is installed, got {package}." in output
    assert output.endswith(f"try pip install {package}\n")


def test_ops_of_built_in_positions_are_there_before_a_network_has_them():
    tells = "import clearhead.model.transformer; from clearhead.model.ops import KINDS; print('rotate' in KINDS)"
    assert run("-c", tells) == (0, "True\n")
