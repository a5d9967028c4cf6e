"""Commands of the command line in this process, what they say, and folders with models for them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from clearhead import config as c
from clearhead.api import Model
from clearhead.cli import main
from clearhead.model import Transformer
from clearhead.recipe.tokenizers import Words
from clearhead.text.tokenizers import Tokenizer
from tests.explorer import traced
from tests.small_models import model_of
from tests.small_sounds import speech_model


class Said(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that a user's mistake gives."""
        last = self.err.splitlines()[-1]
        assert last.startswith("error: ")
        assert "Traceback" not in self.err
        return last.removeprefix("error: ")

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def rows(self) -> list[Any]:
        """The objects of JSON lines."""
        return [json.loads(line) for line in self.lines]

    @property
    def json(self) -> Any:
        """The object that is all of standard output."""
        return json.loads(self.out)


class Shell:
    """Runs commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: object) -> Said:
        self.capsys.readouterr()
        code: Any = 0
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            code = end.code
        return Said(code, *self.capsys.readouterr())

    def done(self, *words: object) -> Said:
        """What a command says that does its work."""
        said = self(*words)
        assert said.code == 0, said.err
        return said

    def refused(self, *words: object) -> str:
        """The error of a command that is a user's mistake, and prints nothing else."""
        said = self(*words)
        assert (said.code, said.out) == (2, "")
        return said.error


def classifier(*, labels: tuple[str, ...] = ("x", "y"), pairs: bool = False, **head: object) -> Model:
    """An encoder with opinions about the labels of texts, or of pairs."""
    tokenizer = Tokenizer.train(["one two three four", "this is about a b"], Words())
    if pairs:
        tokenizer = tokenizer.templated("$A", "$A {end} $B:1")
    torch.manual_seed(0)
    reads = c.TokenInput(vocab_size=tokenizer.vocab_size, n_types=2 if pairs else 0)
    encoder = traced.stack().model_copy(update={"input": reads})
    given = c.ClassificationHead.model_validate({"n_labels": len(labels), "labels": labels, **head})
    network = Transformer(c.ModelConfig(encoder=encoder, head=given))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return Model(network.eval(), tokenizer)


MAKERS: dict[str, Callable[[], Model]] = {
    "translator": lambda: model_of("demo"),
    "writer": lambda: model_of("nano"),
    "gpt2": lambda: model_of("gpt2", n_layers=2),
    "labels": classifier,
    "speech": speech_model,
}


class Folders(dict[str, Path]):
    """A folder for each model by name, written when it is first asked for: of MAKERS, of `traced`, or a preset."""

    def __init__(self, parent: Path) -> None:
        super().__init__()
        self.parent = parent

    def __missing__(self, name: str) -> Path:
        if name in MAKERS:
            model = MAKERS[name]()
        else:
            model = traced.model_of(traced.CONFIGS[name]) if name in traced.CONFIGS else model_of(name)
        self[name] = model.save(self.parent / name)
        return self[name]
