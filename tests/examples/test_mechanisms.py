"""The guide's norm and positions: trained, traced, explained, saved, loaded, and missed by name."""

import json
import textwrap

import pytest

from clearhead.errors import UserError
from clearhead.model.ops import KINDS, Kind, Steps
from tests.examples.packages import follow, page, run

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


TURNED = """
from typing import Literal
from torch import Tensor
from clearhead.config import AnyWidth, NoEnd, StackConfig
from clearhead.model.attention_bias import NotAdded, NotRelated, NotScored, Rotation
from clearhead.model.ops import Steps
from clearhead.model.positions import rotation
from tests.model import small

class Turned(NoEnd, AnyWidth):
    builds = "turned:TurnedEncoding"
    label, acts_on = "turned", "queries and keys"
    kind: Literal["own.turned"] = "own.turned"

{module}
if __name__ == "__main__":
    from turned import Turned
    small.assert_values_follow(small.decoder(positions=Turned()), small.ids(1, 5))
"""


def test_mechanisms_of_another_package(tmp_path):
    assert follow("mechanism", tmp_path) == ["mnopqrstuv"]
    status, output = run("-c", USE, path=tmp_path / "site", cwd=tmp_path)
    assert status == 0, output
    seen = json.loads(output.splitlines()[-1])
    assert {"decoder.blocks.0.attn_norm.scale", "decoder.blocks.0.attn.scores"} <= {*seen["addresses"]}
    assert seen["difference"] < 1e-5
    assert "log_distance" in seen["summary"]
    assert run("check.py", path=tmp_path / "site", cwd=tmp_path) == (0, "43 values are equal\n")

    recipe = (tmp_path / "letters.toml").read_text(encoding="utf-8")
    (tmp_path / "wrong.toml").write_text(recipe.replace("p = 1.5", "epz = 1.5"), encoding="utf-8")
    status, output = run("-m", "clearhead", "train", "wrong.toml", path=tmp_path / "site", cwd=tmp_path)
    assert status == 2
    assert output.endswith("expected a field of clearhead-example-mechanism.p_norm, got epz; did you mean eps?\n")

    status, output = run("-m", "clearhead", "generate", "run", "the", cwd=tmp_path)
    assert (status, len(output.splitlines())) == (2, 1), output
    package = "clearhead-example-mechanism"
    assert f": expected a mechanism that is installed, got {package}." in output
    assert output.endswith(f"try pip install {package}\n")


def test_ops_of_built_in_positions_are_there_before_a_network_has_them():
    tells = "import clearhead.model.transformer; from clearhead.model.ops import KINDS; print('rotate' in KINDS)"
    assert run("-c", tells) == (0, "True\n")


def test_the_ops_of_the_guides_rotation_are_its_arithmetic(tmp_path):
    module = next(text for text in page("mechanism") if "def rotation(" in text)
    (tmp_path / "turned.py").write_text(TURNED.replace("{module}", module), encoding="utf-8")
    assert run(str(tmp_path / "turned.py")) == (0, "")


def test_a_kind_of_op_that_another_module_defines_is_refused():
    mine = Kind(textwrap.dedent)  # pyrefly: ignore
    with pytest.raises(UserError, match=r"^textwrap: expected a new name .* got 'add', which clearhead.model.ops def"):
        KINDS["add"] = mine
    with pytest.raises(UserError, match=r"^textwrap: expected a new name .* try 'textwrap.norm'$"):
        KINDS.__ior__({"norm": mine})
    assert KINDS["add"] is not mine is not KINDS["norm"]


def test_an_op_of_no_kind_is_refused():
    with pytest.raises(UserError, match=r"^a.out: expected a kind of op in clearhead.model.ops.KINDS, got 'rotat'; "):
        Steps().do("a.out", "rotat", "a.in")
