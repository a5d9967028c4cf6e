"""`clearhead export --to gguf`, and the other commands with such a file as their model."""

from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import load
from clearhead.cli.share.formats import quiet
from clearhead.model import Tokens
from clearhead.recipe.contract import Contract
from clearhead.recipe.tokenizers import ByteBPE
from tests.later import later
from tests.shell import Folders, Shell
from tests.small_models import TEXTS, model_of

later("gguf")


def test_a_model_of_ours(shell: Shell) -> None:
    model = model_of("llama-tiny", ByteBPE(vocab_size=300))
    model.put_under(Contract(task="lm"))
    model.save(Path("mine"))
    said = shell.done("export", "mine", "--to", "gguf", "--dtype", "f16")
    assert said.out.startswith("mine-gguf: GGUF, F16, 0.")
    assert "note: mine splits texts by rules that GGUF has no name for" in said.err
    assert "its output differs from clearhead's by " in said.err
    file = Path("mine-gguf/mine-F16.gguf")
    back = load("mine-gguf")
    assert back.tokenizer.encode_batch(TEXTS) == model.tokenizer.encode_batch(TEXTS)
    assert back.settings().end_ids == model.settings().end_ids
    assert back.contract == model.contract
    halved = {name: p.half() for name, p in model.network.named_parameters() if p.ndim > 1}
    assert all(torch.equal(dict(back.network.named_parameters())[name], p) for name, p in halved.items())
    shell.done("generate", file, "one two", "--max-new-tokens", 4)
    shown = [shell.done("tokenizer", "show", name, "one two").lines[1:] for name in (file, "mine")]
    assert shown[0] == shown[1]
    assert shell.done("summary", file).out == shell.done("summary", "mine").out


@pytest.mark.parametrize("dtype", ["bfloat16", "q8_0"])
def test_other_types(shell: Shell, folders: Folders, dtype: str) -> None:
    shell.done("export", folders["llama-tiny"], "--to", "gguf", "--dtype", dtype, "--out", "out")
    shell.done("generate", "out", "one two", "--max-new-tokens", 4)


def test_a_model_that_writes_nothing_is_refused(shell: Shell, folders: Folders) -> None:
    told = shell.refused("export", folders["bert-base"], "--to", "gguf", "--out", "out")
    assert told.endswith("expected a decoder that writes texts, got another model; try --to hf")
    assert not Path("out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f16", "q8_0"])
def test_a_real_model(dtype: str, shared_data: Path, shell: Shell) -> None:
    """stories15M with Llama 2's tokenizer: text, logits and tokens in both libraries."""
    transformers: Any = later("transformers")
    folder = Path("stories15M")
    folder.mkdir()
    for source in ("checkpoints/stories15M", "tokenizers/llama2"):
        for file in (shared_data / source).iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
    model = load(folder)
    assert "note" not in shell.done("export", folder, "--to", "gguf", "--dtype", dtype).err
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
