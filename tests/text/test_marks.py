import pytest
import tokenizers
from tokenizers import pre_tokenizers
from tokenizers.processors import TemplateProcessing

from clearhead.errors import UserError
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import Words
from clearhead.text.special_tokens import Marks, document_marks, source_marks, target_marks, template_marks
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
    marks = template_marks(ours)
    assert [marks.around(ids) for ids in ours.encode_batch(TEXTS)] == ours.encode_batch(TEXTS, marks=True)
    assert source_marks(ours) == marks
    assert len(marks) == template.count("<")


def test_without_a_template():
    ours = tokenizer()
    assert template_marks(ours) == Marks()
    assert source_marks(ours) == target_marks(ours, DEFAULT) == Marks(after=(3,))
    assert document_marks(ours, DEFAULT) == Marks((2,), (3,))


def test_what_is_written_has_an_end_at_which_generation_ends():
    first = tokenizer("<bos> $A")
    assert target_marks(first, DEFAULT) == document_marks(first, DEFAULT) == Marks((2,), (3,))
    assert target_marks(first, GenerationConfig(end_ids=(7, 8))) == Marks((2,), (7,))
    assert target_marks(first, GenerationConfig(end_ids=(7, 3))) == Marks((2,), (3,))
    last = tokenizer("$A <eos>")
    assert target_marks(last, GenerationConfig(forced_first_id=5)) == Marks((5,), (3,))
    assert document_marks(last, DEFAULT) == Marks((), (3,))
    unnamed = tokenizer(named=False)
    assert document_marks(unnamed, GenerationConfig(end_ids=(4,))) == Marks((), (4,))
    with pytest.raises(UserError, match=r"^tokenizer: expected eos_token"):
        document_marks(unnamed, DEFAULT)


def test_a_template_without_its_text_is_told():
    with pytest.raises(UserError, match=r"^tokenizer: expected a template around a text"):
        template_marks(tokenizer("<bos> <eos>"))
