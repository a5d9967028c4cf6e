"""`clearhead check` says what it compared, what differs and what it left out."""

import random
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from clearhead.api import load, sentences
from clearhead.api.sentences import Module, read_module
from clearhead.checkpoints.weights.modules import Listed, network_folder
from clearhead.model.sentences import Dense, Pooling, Step, Unit, VectorLayerNorm
from tests.later import later
from tests.shell import Shell
from tests.sidecars.models import MAKERS
from tests.sidecars.tiny import change, network, put, tokenizer
from tests.sidecars.vectors import of_files
from tests.small_models import model_of

later("transformers")


@pytest.mark.parametrize("name", ["gpt2", "nano"])
def test_what_was_compared_is_said(name: str, shell: Shell) -> None:
    folder = model_of(name).save(Path("model"))
    (folder / "notes.txt").write_text("unread")
    lines = shell("check", folder).lines
    assert "Files that are not read: notes.txt" in lines
    assert lines[-1].startswith("Compared: states, head.logits, ids of 10 texts, greedy text of 8 tokens.")
    assert lines[-1].endswith("Not compared: labels, vectors of texts.")


def test_a_gguf_file_is_compared_with_what_the_reference_reads_of_it(
    monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    later("gguf")
    from clearhead.checkpoints.weights.gguf import GgufFile
    from clearhead.cli.share.gguf import write

    file = Path("model.gguf").absolute()
    write(model_of("llama-tiny"), file, "float16", name="x")
    said = shell("check", file)
    assert said.lines[-1].startswith("Compared: states, head.logits, greedy text of 8 tokens."), said.err
    assert "  ids of texts: not compared: the reference makes another tokenizer of a GGUF file" in said.lines
    before = GgufFile.read
    wrong = "blk.0.ffn_up.weight"
    monkeypatch.setattr(GgufFile, "read", lambda *a: before(*a) * 2 if a[1] == wrong else before(*a))
    assert any(line.endswith("not close") for line in shell("check", file).lines)


def test_another_tokenizer_is_not_close(monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    from clearhead.text.tokenizers import Tokenizer

    folder = model_of("gpt2").save(Path("model"))
    before = Tokenizer.encode_batch
    monkeypatch.setattr(Tokenizer, "encode_batch", lambda *a, **k: [[0, *row] for row in before(*a, **k)])
    said = shell("check", folder)
    assert "\nClose" not in said.out
    assert "expected the ids of 10 texts of the reference, got" in said.err


def test_what_the_reference_does_not_open_is_not_compared(shell: Shell) -> None:
    folder = model_of("gpt2").save(Path("model"))
    (folder / "MANIFEST.json").unlink()
    change(folder / "tokenizer_config.json", {"padding_side": "above"})
    assert "Not compared: ids of texts, labels, vectors of texts." in shell("check", folder).lines[-1]


# --- vectors of texts ------------------------------------------------------------------------------------------------


WHAT = "vectors of 12 texts by sentence-transformers 6.2.0"


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """A model of sentences whose network lies in a folder of its own: pooling, a dense layer, a norm and a length."""
    folder, kinds = tmp_path / "encoder", ("Transformer", "Pooling", "Dense", "LayerNorm", "Normalize")
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    put(folder / "modules.json", modules)
    network(folder / "0_Transformer", "Bert", "Model", seed=0)
    tokenizer(folder / "0_Transformer")
    put(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True})
    put(folder / "2_Dense" / "config.json", {"in_features": 16, "out_features": 16, "bias": False})
    save_file({"linear.weight": torch.eye(16)}, folder / "2_Dense" / "model.safetensors")
    MAKERS["LayerNorm"](random.Random(0), folder / "3_LayerNorm", 16)
    put(folder / "config_sentence_transformers.json", {"prompts": {"query": "ab "}, "default_prompt_name": "query"})
    put(folder / "0_Transformer" / "sentence_bert_config.json", {"max_seq_length": 20, "do_lower_case": True})
    return folder


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for sentence-transformers that reads the same files without our code."""

    class Encoder:
        def __init__(self, name: str, *, device: str, local_files_only: bool) -> None:
            from transformers import AutoModel

            self.vector = of_files(Path(name), AutoModel.from_pretrained(network_folder(Path(name))).eval())

        def float(self) -> "Encoder":
            return self

        def encode(self, text: str, *, prompt: str | None, convert_to_tensor: bool, show_progress_bar: bool) -> Tensor:
            return self.vector(text, prompt)

    stand_in = SimpleNamespace(SentenceTransformer=Encoder, __version__="6.2.0")
    monkeypatch.setitem(sys.modules, "sentence_transformers", stand_in)


def test_without_the_library_vectors_are_not_compared(
    encoder: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    lines = shell("check", encoder).lines
    why = "sentence-transformers is not installed; try pip install sentence-transformers"
    assert f"  vectors of texts: not compared: {why}" in lines
    assert lines[-1].endswith("Not compared: labels, greedy text, vectors of texts.")


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("width", [None, 5, 99])
def test_vectors_of_texts_are_compared(width: int | None, encoder: Path, shell: Shell) -> None:
    change(encoder / "config_sentence_transformers.json", {"truncate_dim": width})
    lines = shell("check", encoder).lines
    assert f"  {WHAT}: equal" in lines
    assert "Files that are not read: none" in lines
    vectors = load(encoder).embed(["ab"], unit=False)
    assert vectors.shape == (1, min(width or 16, 16))


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("wrong", [Pooling, Dense, VectorLayerNorm, Unit])
def test_a_wrong_module_is_one_line(
    wrong: type[Step], encoder: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    def spoilt(folder: Path, one: Listed) -> Module:
        module = read_module(folder, one)
        match module.step if isinstance(module.step, wrong) else None:
            case Pooling():
                return replace(module, step=Pooling(("cls",)))
            case Dense(weight) as step:
                return replace(module, step=replace(step, weight=weight + 0.01 * torch.eye(16)[3]))
            case VectorLayerNorm(_, bias) as step:
                return replace(module, step=replace(step, bias=bias + 0.01 * torch.eye(16)[3]))
            case Unit():
                return replace(module, step=Pooling())
        return module

    monkeypatch.setattr(sentences, "read_module", spoilt)
    said = shell("check", encoder)
    assert "\nClose" not in said.out
    assert said.error.startswith(f"{encoder}: expected the {WHAT} of the reference")
    assert re.search(r"got a difference of \d\.\de[+-]\d\d for ", said.error)
