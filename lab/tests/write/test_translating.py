"""`clearhead lab write`: the file, refusals, and the learner's functions with a translator's weights."""

from pathlib import Path

import pytest
import torch

from clearhead import config as c
from clearhead.api.model import Model
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import BPE
from clearhead.text.tokenizers import Tokenizer
from clearhead_lab.write.judging import load
from clearhead_lab.write.translating import check_model, put_inside, translate
from clearhead_lab.write_commands import check, write_file

SOLUTION = Path(__file__).with_name("solution.py")
TEXT = "the low bank lent the lowest money"


def translator(**changes: object) -> Model:
    """A translator with drawn weights, large enough that each token depends on what is attended to."""
    words = Tokenizer.train([TEXT, "a newer bank is lower than the newest"], BPE(vocab_size=60))
    small = {
        "input": c.TokenInput(vocab_size=words.vocab_size, scale=True), "d_model": 16, "n_layers": 2, "n_heads": 2,
        "d_ff": 32, "positions": c.Sinusoidal(layout="interleaved"), "norm_place": "post", "activation": "relu",
    }  # fmt: skip
    stack = c.StackConfig.model_validate({**small, **changes})
    torch.manual_seed(9)
    head = c.LanguageHead(tied=False)
    network = Transformer(c.ModelConfig(encoder=stack, decoder=stack, head=head, share_embeddings=True))
    for p in (p for p in network.parameters() if p.dim() > 1):
        p.data.normal_()
    return Model(network.eval(), words, GenerationConfig(max_new_tokens=12))


def ours(model: Model) -> list[int]:
    return [*model.hypotheses([TEXT], beams=1)[0][0].tokens]


def test_the_functions_write_the_tokens_of_the_library_inside_it_and_outside():
    model, mine = translator(), load(SOLUTION)
    check_model(model, "model")
    expected = ours(model)
    assert len(set(expected)) > 2
    assert translate(mine, model, TEXT) == expected
    calls = put_inside(mine, model)
    assert ours(model) == expected
    assert len(calls) > len(expected)
    mine.attention = lambda q, k, v, mask: v.mean(2, keepdim=True).expand_as(q)  # pyrefly: ignore
    assert ours(model) != expected
    assert translate(mine, model, TEXT) != expected


def test_other_networks_are_refused():
    with pytest.raises(UserError, match=r"^here: expected encoder.norm_place=post, got pre; try a run of `clearhead d"):
        check_model(translator(norm_place="pre"), "here")


def test_the_command_writes_once_and_translates_with_a_run(tmp_path, capsys):
    folder = translator().save(tmp_path / "model")
    check(SOLUTION, model=str(folder), text=TEXT)
    said = capsys.readouterr().out
    assert "29 of 29 right." in said
    assert "times inside the library." in said
    write_file(out=tmp_path)
    compile((tmp_path / "transformer.py").read_text(encoding="utf-8"), "transformer.py", "exec")
    with pytest.raises(UserError, match="expected no such file, got one"):
        write_file(out=tmp_path)
    with pytest.raises(UserError, match="expected your file, got none; `clearhead lab write --out"):
        check(tmp_path / "model")
