"""Every line of ours in docs/moving-from-pipelines.md, with tiny models in the folders that it names."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import clearhead
from clearhead import config as c
from clearhead.api import Model
from clearhead.cli import main
from clearhead.model import Transformer
from clearhead.text.tokenizers import Tokenizer
from tests.explorer.traced import CONFIGS, stack
from tests.explorer.traced import model_of as traced
from tests.small_models import model_of
from tests.small_sounds import speech_model

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "moving-from-pipelines.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\S+)[^\n]*\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
WORDS = "two dogs . a man is riding bike who rides ? good bad ada lives in paris politics sport".split()
NLI = ("contradiction", "neutral", "entailment")


def encoder(head: c.Head) -> Model:
    """A tiny random encoder of words, which reads pairs and masks."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    files = {"vocab.txt": "\n".join(words).encode(), "tokenizer_config.json": json.dumps(settings).encode()}
    torch.manual_seed(0)
    reads = c.TokenInput(vocab_size=len(words), n_types=2, norm=True)
    positions = c.Learned(max_length=64)
    encoder = stack(input=reads, norm_place="post", positions=positions, activation="gelu")
    config = c.ModelConfig(
        encoder=encoder, head=head, init=c.Init(depth_scaled=False)
    )  # A BERT, for other libraries too.
    return random(Model(Transformer(config), Tokenizer.from_files(files)))


def random(model: Model) -> Model:
    for parameter in model.network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    model.network.eval()
    return model


MAKERS: dict[str, Callable[[], Model]] = {
    "translator": lambda: model_of("demo"),
    "writer": lambda: model_of("demo"),
    "reader": lambda: encoder(c.SpanHead()),
    "labels": lambda: encoder(c.ClassificationHead(n_labels=2)),
    "nli": lambda: encoder(c.ClassificationHead(n_labels=3, labels=NLI)),
    "names": lambda: encoder(c.TaggingHead(n_labels=3, labels=("O", "B-PER", "I-PER"))),
    "masks": lambda: encoder(c.LanguageHead(transform=True, bias=True)),
    "vectors": lambda: encoder(c.NoHead()),
    "story": lambda: model_of("nano"),
    "llama": lambda: model_of("llama-tiny"),
    "pictures": lambda: traced(CONFIGS["vision"]),
    "sounds": speech_model,
}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("texts.txt", "story.txt"):
        Path(name).write_text("two dogs .\na man is riding a bike .\n", encoding="utf-8")
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save("cat.png")


def blocks(section: str, language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", SECTIONS[section], re.MULTILINE | re.DOTALL)
    return [block for block in found if not block.startswith("# transformers")]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_line_of_ours_runs(section: str, capsys):
    (python,) = blocks(section, "python")
    assert python.startswith("# clearhead\n")
    (name,) = re.findall(r'clearhead\.load\("(\w+)"\)', python)
    MAKERS[name]().save(Path(name))
    lines = python.splitlines()[1:]
    space: dict[str, Any] = {"clearhead": clearhead, "text": "two dogs .", "Path": Path}
    exec(lines[0], space)
    for line in lines[1:]:
        assert eval(line, space) is not None, line
    for shell in blocks(section, "sh"):
        for line in shell.splitlines():
            main(shlex.split(line.removeprefix("clearhead ")))
            said = capsys.readouterr().out
            out = re.search(r"--out (\S+)", line)
            assert (Path(out[1]).read_text(encoding="utf-8") if out else said).count("\n") >= 1, line


def test_the_old_calls_are_gone_or_there_as_the_page_says():
    known = pytest.importorskip("transformers.pipelines")
    there = {*known.SUPPORTED_TASKS, *known.TASK_ALIASES}
    rows = re.findall(r"^\| (`[^|]*`) \| (removed|there) \|", PAGE, re.MULTILINE)
    named = {name: state for names, state in rows for name in re.findall(r"`([\w-]+)`", names)}
    assert len(named) == 13
    assert {name for name, state in named.items() if state == "there"} == {*named} & there
    for name in ("visual-question-answering", "image-to-text", "image-to-image"):
        assert f"`{name}`" in PAGE
        assert name not in there
