import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from clearhead.api import Model, load
from clearhead.checkpoints.weights import safetensors
from clearhead.cli import main
from clearhead.cli.share.formats import ExportOptions, check_options, judge, quiet, whole
from clearhead.errors import NumericError, UserError
from tests.small_models import model_of


class Said(NamedTuple):
    """What a command answered."""

    code: object
    out: str
    err: str


Export = Callable[..., Said]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def export(capsys: pytest.CaptureFixture[str]) -> Export:
    def run(*words: object) -> Said:
        capsys.readouterr()
        code: object = 0
        try:
            main(["export", *map(str, words)])
        except SystemExit as end:
            code = end.code
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture
def writer(tmp_path: Path) -> Model:
    model = model_of("gpt2")
    model.save(tmp_path / "writer")
    return model


def own() -> Model:
    """An architecture that no other library has."""
    return model_of("demo", norm="rms")


# --- the line and the folder -------------------------------------------------------------------------------------


def test_one_line_says_what_was_written(export: Export, writer: Model):
    said = export("writer", "--to", "hf")
    assert said.code == 0
    assert said.out == "writer-hf: GPT2LMHeadModel for the Hugging Face libraries, float32, 0.1 MB\n"
    assert said.err.splitlines() == [
        "reading writer",
        "writing writer-hf",
        "Open it with transformers.GPT2LMHeadModel.from_pretrained('writer-hf')",
    ]


def test_the_reference_library_opens_it(export: Export, writer: Model):
    transformers = pytest.importorskip("transformers")
    assert export("writer", "--to", "hf", "--out", "there/copy").code == 0
    with quiet():
        theirs = transformers.AutoModelForCausalLM.from_pretrained("there/copy").eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained("there/copy")
    text = "three one two"
    ids = writer.tokenizer.encode(text)
    assert tokenizer.encode(text, add_special_tokens=False) == ids
    with torch.no_grad():
        torch.testing.assert_close(theirs(torch.tensor([ids])).logits[0], writer.logits(text), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_types_and_shards(export: Export, writer: Model, dtype: str):
    said = export("writer", "--to", "hf", "--dtype", dtype, "--shard-gb", "0.000004", "--out", "half")
    assert said.code == 0
    assert f", {dtype}, " in said.out
    assert json.loads(Path("half/config.json").read_bytes())["dtype"] == dtype
    assert len(list(Path("half").glob("*.safetensors"))) > 1
    assert Path("half/model.safetensors.index.json").exists()
    assert {t.dtype for t in safetensors.read(Path("half")).values()} == {getattr(torch, dtype)}
    torch.testing.assert_close(
        load("half", dtype="float32").logits("one two"),
        load("writer", dtype=dtype).network.float()(torch.tensor([writer.tokenizer.encode("one two")]))[0],
        check_dtype=False,
    )


def test_nothing_is_overwritten(export: Export, writer: Model):
    Path("writer-hf").mkdir()
    said = export("writer", "--to", "hf")
    assert (said.code, said.out) == (2, "")
    assert said.err == "error: writer-hf: expected nothing there, got a file or folder; give another --out\n"
    assert list(Path("writer-hf").iterdir()) == []


@pytest.mark.parametrize("to", ["hf", "ctranslate2"])
def test_an_architecture_of_our_own_stays_here(export: Export, to: str, tmp_path: Path):
    if to == "ctranslate2":
        pytest.importorskip("ctranslate2")
    own().save(tmp_path / "own")
    said = export("own", "--to", to)
    assert said.code == 2
    assert said.err.splitlines()[-1].startswith(
        "error: own: expected an architecture that other libraries have, got one of our own; try --to onnx"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nowhere --to hf --out x", "nowhere"),
        ("writer --to torch", 'Invalid value "torch" for --to. Choose from: "hf", "peft", "ctranslate2", "onnx"'),
        ("writer", "--to requires an argument"),
        ("writer --to hf --dtype int8", 'Invalid value "int8" for --dtype'),
        ("writer --to hf --quantization int8", "--quantization: expected it with --to ctranslate2, got --to hf"),
        ("writer --to ctranslate2 --quantization int8 --dtype float16", "both name the type of the weights; give one"),
        ("writer --to onnx --dtype bfloat16", "expected float32 or float16 with --to onnx, got bfloat16"),
        ("writer --to onnx --shard-gb 1", "--shard-gb: expected it with --to hf, got --to onnx"),
        ("writer --to hf --shard-gb 0", "--shard-gb: expected more than 0, got 0; try 5"),
    ],
)
def test_a_mistake_is_one_line(export: Export, writer: Model, tmp_path: Path, line: str, says: str):
    said = export(*line.split())
    assert (said.code, said.out) == (2, "")
    assert says in said.err.splitlines()[-1]
    assert "Traceback" not in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["writer"]


@pytest.mark.parametrize(("to", "package"), [("onnx", "onnx"), ("onnx", "onnxscript"), ("ctranslate2", "ctranslate2")])
def test_a_missing_package_is_named(
    export: Export, writer: Model, monkeypatch: pytest.MonkeyPatch, to: str, package: str
):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find("json"))
    said = export("writer", "--to", to)
    line = f"error: --to {to}: expected the package {package}, got none; try pip install 'clearhead[export]'\n"
    assert (said.code, said.err) == (2, line)


def test_options_that_fit():
    check_options("hf", ExportOptions(dtype="bfloat16", shard_gb=2.0))
    check_options("ctranslate2", ExportOptions(quantization="int8"))
    check_options("onnx", ExportOptions(dtype="float16"))


# --- whole or not at all -----------------------------------------------------------------------------------------


def test_whole(tmp_path: Path):
    with whole(tmp_path / "a" / "b") as folder:
        assert folder.parent == tmp_path / "a", "on the same disk"
        (folder / "file").write_text("text")
        assert not (tmp_path / "a" / "b").exists()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
    assert (tmp_path / "a" / "b" / "file").read_text() == "text"


@pytest.mark.parametrize("error", [UserError, KeyboardInterrupt, RuntimeError])
def test_a_failure_leaves_nothing(tmp_path: Path, error: type[BaseException]):
    def fail() -> None:
        with whole(tmp_path / "place") as folder:
            (folder / "file").write_text("text")
            raise error("it failed")

    with pytest.raises(error):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_came_meanwhile_stays(tmp_path: Path):
    with pytest.raises(UserError, match="expected nothing there"), whole(tmp_path / "place"):
        (tmp_path / "place").mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def test_judgement(capsys: pytest.CaptureFixture[str]):
    judge("name", 1e-6, exact=True, remedy="")
    judge("name", 0.1, exact=False, remedy="")
    assert "differs from clearhead's by 1e-06 of the largest value" in capsys.readouterr().err
    for gap, exact in ((0.01, True), (0.3, False), (float("nan"), True), (float("nan"), False)):
        with pytest.raises(NumericError, match="try another"):
            judge("name", gap, exact=exact, remedy="try another")
