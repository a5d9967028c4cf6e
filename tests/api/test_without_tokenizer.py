"""A network opens although its tokenizer does not: load(tokenizer=None), --no-tokenizer."""

import json
from pathlib import Path

import pytest

from clearhead.api import load
from clearhead.cli.program import run
from clearhead.errors import UserError
from clearhead.recipe.tokenizers import Words
from clearhead.text.tokenizers import Tokenizer
from tests.small_models import model_of

DAMAGED = {
    "tokenizer.json": "{",
    "vocab.json": json.dumps({"a": 0, "b": 0}),
}


@pytest.fixture
def folder(tmp_path) -> Path:
    made = model_of("llama-tiny").save(tmp_path / "model")
    for name in ("MANIFEST.json", "tokenizer.json", "tokenizer_config.json"):
        (made / name).unlink(missing_ok=True)
    return made


@pytest.mark.parametrize("name", DAMAGED)
def test_a_tokenizer_that_does_not_open_stops_no_network(name: str, folder: Path):
    (folder / name).write_text(DAMAGED[name])
    (folder / "merges.txt").write_text("")
    with pytest.raises(UserError, match=r"load\(…, tokenizer=None\), --no-tokenizer$"):
        load(folder)
    model = load(folder, tokenizer=None)
    assert not model.has_tokenizer
    other = Tokenizer.train(["a b c"], Words())
    assert load(folder, tokenizer=other).tokenizer is other


def test_a_command_goes_on_without(folder: Path, tmp_path, capsys):
    (folder / "tokenizer.json").write_text("{")
    words = ["export", str(folder), "--to", "hf", "--out", str(tmp_path / "out")]
    assert run(words) == 2
    assert "--no-tokenizer" in capsys.readouterr().err
    assert run([*words, "--no-tokenizer"]) == 0
    assert load(tmp_path / "out").config == load(folder, tokenizer=None).config


def test_another_word_is_refused(folder: Path):
    with pytest.raises(UserError, match=r'tokenizer: expected a Tokenizer, None or "own", got .none.; try'):
        load(folder, tokenizer="none")  # type: ignore[arg-type]
