"""Compiled steps from `load` and from the command line."""

from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.cli import main
from clearhead.errors import UserError
from clearhead.generation.fast import compiled
from tests.small_models import PAIRS, model_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(model_of("gpt2").save(tmp_path_factory.mktemp("models") / "writer"))


def test_the_command_writes_the_same(
    folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    torch._dynamo.reset()
    words = ["generate", folder, PAIRS.source[0], "--max-new-tokens", "6", "--temperature", "0"]
    main(words)
    plain = capsys.readouterr()
    main([*words, "--compile"])
    fast = capsys.readouterr()
    torch._dynamo.reset()
    assert fast.out == plain.out
    assert plain.err == ""
    assert fast.err.startswith("note: ")
    assert len(fast.err.splitlines()) == 1


def test_rounded_weights_are_not_compiled(folder: str) -> None:
    with pytest.raises(UserError, match=r"^compile: expected weights as they are stored, got int8"):
        clearhead.load(Path(folder), int8=True, compile=True)
