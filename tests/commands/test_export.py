"""`clearhead export`: the line, the folder, and what it refuses."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from clearhead.api import Model, load
from clearhead.checkpoints.weights import safetensors
from clearhead.cli.share.formats import judge, quiet, whole
from clearhead.errors import NumericError, UserError
from tests.shell import Shell
from tests.small_models import model_of


@pytest.fixture
def writer(tmp_path) -> Model:
    model = model_of("gpt2")
    model.save(tmp_path / "writer")
    return model


def own() -> Model:
    """An architecture that no other library has."""
    return model_of("demo", norm="rms")


# --- the line and the folder -------------------------------------------------------------------------------------


def test_the_reference_library_opens_it(shell: Shell, writer: Model):
    said = shell.done("export", "writer", "--to", "hf")
    assert said.out == "writer-hf: GPT2LMHeadModel for the Hugging Face libraries, float32, 0.1 MB\n"
    opens = "Open it with transformers.GPT2LMHeadModel.from_pretrained('writer-hf')"
    assert said.err.splitlines() == ["reading writer", "writing writer-hf", opens]
    assert "writer-hf: expected nothing there" in shell.refused("export", "writer", "--to", "hf")
    transformers = pytest.importorskip("transformers")
    with quiet():
        theirs = transformers.AutoModelForCausalLM.from_pretrained("writer-hf").eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained("writer-hf")
    text = "three one two"
    ids = writer.tokenizer.encode(text)
    assert tokenizer.encode(text, add_special_tokens=False) == ids
    with torch.no_grad():
        torch.testing.assert_close(theirs(torch.tensor([ids])).logits[0], writer.logits(text), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_types_and_shards(shell: Shell, writer: Model, dtype: str):
    line = f"export writer --to hf --dtype {dtype} --shard-gb 0.000004 --out half"
    assert f", {dtype}, " in shell.done(*line.split()).out
    assert json.loads(Path("half/config.json").read_bytes())["dtype"] == dtype
    assert len(list(Path("half").glob("*.safetensors"))) > 1
    assert Path("half/model.safetensors.index.json").exists()
    assert {t.dtype for t in safetensors.read(Path("half")).values()} == {getattr(torch, dtype)}
    torch.testing.assert_close(
        load("half", dtype="float32").logits("one two"),
        load("writer", dtype=dtype).network.float()(torch.tensor([writer.tokenizer.encode("one two")]))[0],
        check_dtype=False,
    )


@pytest.mark.parametrize("to", ["hf", "ctranslate2"])
def test_an_architecture_of_our_own_stays_here(shell: Shell, to: str, tmp_path):
    if to == "ctranslate2":
        pytest.importorskip("ctranslate2")
    model_of("demo", norm="rms").save(tmp_path / "own")
    assert shell.refused("export", "own", "--to", to).startswith(
        "own: expected an architecture that other libraries have, got one of our own; try --to onnx"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


@pytest.mark.parametrize(("to", "package"), [("onnx", "onnx"), ("onnx", "onnxscript"), ("ctranslate2", "ctranslate2")])
def test_a_missing_package_is_named(shell: Shell, monkeypatch, to: str, package: str):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find("json"))
    told = shell.refused("export", "writer", "--to", to)
    assert told == f"--to {to}: expected the package {package}, got none; try pip install 'clearhead[export]'"


# --- whole or not at all -----------------------------------------------------------------------------------------


def test_whole(tmp_path):
    with whole(tmp_path / "a" / "b") as folder:
        assert folder.parent == tmp_path / "a", "on the same disk"
        (folder / "file").write_text("text")
        assert not (tmp_path / "a" / "b").exists()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
    assert (tmp_path / "a" / "b" / "file").read_text() == "text"


@pytest.mark.parametrize("error", [UserError, KeyboardInterrupt, RuntimeError])
def test_a_failure_leaves_nothing(tmp_path, error: type[BaseException]):
    def fail() -> None:
        with whole(tmp_path / "place") as folder:
            (folder / "file").write_text("text")
            raise error("it failed")

    with pytest.raises(error):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_came_meanwhile_stays(tmp_path):
    with pytest.raises(UserError, match="expected nothing there"), whole(tmp_path / "place"):
        (tmp_path / "place").mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def test_judgement(capsys):
    judge("name", 1e-6, exact=True, remedy="")
    judge("name", 0.1, exact=False, remedy="")
    assert "differs from clearhead's by 1e-06 of the largest value" in capsys.readouterr().err
    for gap, exact in ((0.01, True), (0.3, False), (float("nan"), True), (float("nan"), False)):
        with pytest.raises(NumericError, match="try another"):
            judge("name", gap, exact=exact, remedy="try another")
