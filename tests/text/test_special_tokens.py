import pytest
import tokenizers
from tokenizers import pre_tokenizers
from tokenizers.processors import TemplateProcessing

from clearhead.errors import UserError
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import Words
from clearhead.text.special_tokens import (
    SpecialTokens,
    document_tokens,
    source_tokens,
    target_tokens,
    template_tokens,
)
from clearhead.text.tokenizers import Tokenizer

TEXTS = ["a b c", "", "c", "d a"]
DEFAULT = GenerationConfig()


def tokenizer(template: str | None = None, *, named: bool = True) -> Tokenizer:
    """0 pad, 1 unk, 2 bos, 3 eos; with a template such as "<bos> $A"."""
    library = Tokenizer.train(["a b c"], Words()).library
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    if template is not None:
        special = [("<bos>", 2), ("<eos>", 3)]
        library.post_processor = TemplateProcessing(single=template, pair=None, special_tokens=special)
    names = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>"} if named else {}
    return Tokenizer(tokenizers.Tokenizer.from_str(library.to_str()), names)


@pytest.mark.parametrize("template", ["<bos> $A", "$A <eos>", "<bos> $A <eos>", "<bos> <bos> $A <eos>"])
def test_marks_are_those_of_the_template(template: str):
    ours = tokenizer(template)
    marks = template_tokens(ours)
    assert [marks.around(ids) for ids in ours.encode_batch(TEXTS)] == ours.encode_batch(TEXTS, special_tokens=True)
    assert source_tokens(ours) == marks
    assert len(marks) == template.count("<")


def test_without_a_template():
    ours = tokenizer()
    assert template_tokens(ours) == SpecialTokens()
    assert source_tokens(ours) == target_tokens(ours, DEFAULT) == SpecialTokens(after=(3,))
    assert document_tokens(ours, DEFAULT) == SpecialTokens((2,), (3,))


def test_what_is_written_has_an_end_at_which_generation_ends():
    first = tokenizer("<bos> $A")
    assert target_tokens(first, DEFAULT) == document_tokens(first, DEFAULT) == SpecialTokens((2,), (3,))
    assert target_tokens(first, GenerationConfig(end_ids=(7, 8))) == SpecialTokens((2,), (7,))
    assert target_tokens(first, GenerationConfig(end_ids=(7, 3))) == SpecialTokens((2,), (3,))
    last = tokenizer("$A <eos>")
    assert target_tokens(last, GenerationConfig(forced_first_id=5)) == SpecialTokens((5,), (3,))
    assert document_tokens(last, DEFAULT) == SpecialTokens((), (3,))
    unnamed = tokenizer(named=False)
    assert document_tokens(unnamed, GenerationConfig(end_ids=(4,))) == SpecialTokens((), (4,))
    with pytest.raises(UserError, match=r"^tokenizer: expected eos_token"):
        document_tokens(unnamed, DEFAULT)


def test_a_template_without_its_text_is_told():
    with pytest.raises(UserError, match=r"^tokenizer: expected a template around a text"):
        template_tokens(tokenizer("<bos> <eos>"))
