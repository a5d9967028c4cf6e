"""`clearhead export --to gguf`, and the other commands with such a file as their model."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import load
from clearhead.cli import main
from clearhead.cli.share.formats import quiet
from clearhead.model import Tokens
from clearhead.recipe.tokenizers import ByteBPE
from tests.later import later
from tests.small_models import TEXTS, model_of

later("gguf")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: None)


def told(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[object, str, str]:
    capsys.readouterr()
    code: object = 0
    try:
        main([*map(str, words)])
    except SystemExit as end:
        code = end.code
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_model_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of("llama-tiny", ByteBPE(vocab_size=300))
    model.save(Path("mine"))
    code, out, err = told(capsys, "export", "mine", "--to", "gguf", "--dtype", "f16")
    assert code == 0, err
    assert out.startswith("mine-gguf: GGUF, F16, 0.")
    assert "note: mine splits texts by rules that GGUF has no name for" in err
    assert "its output differs from clearhead's by " in err
    file = Path("mine-gguf/mine-F16.gguf")
    back = load("mine-gguf")
    assert back.tokenizer.encode_batch(TEXTS) == model.tokenizer.encode_batch(TEXTS)
    assert back.settings().end_ids == model.settings().end_ids
    halved = {name: p.half() for name, p in model.network.named_parameters() if p.ndim > 1}
    assert all(torch.equal(dict(back.network.named_parameters())[name], p) for name, p in halved.items())
    code, out, err = told(capsys, "generate", file, "one two", "--max-new-tokens", 4)
    assert code == 0, err
    code, out, err = told(capsys, "tokenizer", "show", file, "one two")
    assert (code, out.splitlines()[1:]) == (
        0,
        told(capsys, "tokenizer", "show", "mine", "one two")[1].splitlines()[1:],
    ), err
    code, out, err = told(capsys, "summary", file)
    assert (code, out) == (0, told(capsys, "summary", "mine")[1]), err


def test_what_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    model_of("bert-base").save(Path("reader"))
    code, _, err = told(capsys, "export", "reader", "--to", "gguf")
    assert (code, Path("reader-gguf").exists()) == (2, False)
    assert "reader: expected a decoder that writes texts, got another model; try --to hf" in err
    code, _, err = told(capsys, "export", "reader", "--to", "onnx", "--dtype", "q8_0")
    assert code == 2
    assert "--dtype: expected q8_0 with --to gguf, got --to onnx; try float16" in err


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f16", "q8_0"])
def test_a_real_model(dtype: str, shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """stories15M with Llama 2's tokenizer: text, logits and tokens in both libraries."""
    transformers: Any = later("transformers")
    folder = Path("stories15M")
    folder.mkdir()
    for source in ("checkpoints/stories15M", "tokenizers/llama2"):
        for file in (shared_data / source).iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
    model = load(folder)
    code, _, err = told(capsys, "export", folder, "--to", "gguf", "--dtype", dtype)
    assert code == 0, err
    assert "note" not in err
    (file,) = Path("stories15M-gguf").iterdir()
    back = load(file)
    texts = [*TEXTS, "Once upon a time, there was a little girl named Lily.", "  Zoë's café – 你好 😀\n\n\tx"]
    assert back.reader.ids(texts) == model.reader.ids(texts)
    if dtype == "f16":
        assert back.generate("Once upon a time") == model.generate("Once upon a time")
    with quiet():
        theirs = transformers.AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32
        ).eval()
        words = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    ids = torch.tensor(back.reader.ids(texts[-2:-1]))
    assert words(texts[-2])["input_ids"] == ids[0].tolist()
    with torch.no_grad():
        logits = load(file, dtype="float32").network(Tokens(ids))
        torch.testing.assert_close(logits, theirs(ids).logits, rtol=1e-4, atol=1e-4)
