"""A draft from Python and from the command line: the same text, and one line where it does not fit."""

import pytest

from clearhead.api import Model
from clearhead.cli import main
from clearhead.errors import UserError
from clearhead.recipe.tokenizers import Words
from clearhead.text.tokenizers import Tokenizer
from tests.small_models import PAIRS, TEXTS, model_of

PROMPT = PAIRS.source[0]


@pytest.fixture(scope="module")
def writer() -> Model:
    return model_of("gpt2")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_text_is_the_same(writer: Model, temperature: float):
    settings = {"temperature": temperature, "max_new_tokens": 30}
    plain = writer.generate(PROMPT, **settings)
    assert plain
    for draft in ("lookup",) if temperature else (model_of("nano"), writer, "lookup"):
        assert writer.generate(PROMPT, draft=draft, **settings) == plain
        assert "".join(writer.stream(PROMPT, draft=draft, **settings)) == plain


def test_another_vocabulary_is_one_line(writer: Model):
    other = Tokenizer.train([*TEXTS, "zebra"], Words())
    with pytest.raises(UserError, match=r"^draft: expected token 24 None as in the model, got '▁zebra' \(25 tokens"):
        writer.generate(PROMPT, draft=model_of("nano", other))
    with pytest.raises(UserError, match=r"""^draft: expected a model or "lookup", got 'small'; try"""):
        writer.stream(PROMPT, draft="small")


def test_the_command_writes_the_same(writer: Model, tmp_path, capsys):
    folder, draft = (str(model.save(tmp_path / name)) for name, model in (("a", writer), ("b", model_of("nano"))))
    words = ["generate", folder, PROMPT, "--max-new-tokens", "12", "--temperature", "0"]
    main(words)
    plain = capsys.readouterr()
    for name in (draft, "lookup"):
        main([*words, "--draft", name])
        assert capsys.readouterr() == plain
    with pytest.raises(SystemExit):
        main([*words, "--draft", draft, "--edit", "direction.json"])
    assert "--draft: expected it without --edit, got both" in capsys.readouterr().err
