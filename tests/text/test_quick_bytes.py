"""tiktoken's core gives the library's ids, or is not asked."""

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, models, pre_tokenizers

from clearhead.data.files import read_lines
from clearhead.recipe.tokenizers import ByteBPE
from clearhead.text import quick_bytes
from clearhead.text.quick_bytes import QuickBytes
from clearhead.text.tokenizers import Tokenizer

pytest.importorskip("tiktoken")

WORDS = ["the cat's hat", "12 tests, 345 more!", "naïve Ærøskøbing", "日本語のテキスト", "don't  stop\n\n", "Ω≈ç√ 🎉🎉"]
ODD = "\u0085\u00a0\u1680\u2028\u3000\ufeff\u200b\x1c\x1f\0١²Ⅷ々〇ー゙́ſKꙮ𝟘𐍈\U0001f9ff\U000e0001\ue000\uffff\U0010ffff"
TEXT = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("ab 1'\n\ts" + ODD)), max_size=60)


def trained(texts: list[str] = WORDS, *, split_digits: bool = False, lowercase: bool = False) -> Tokenizer:
    config = ByteBPE(vocab_size=400, split_digits=split_digits, lowercase=lowercase)
    return Tokenizer.train(texts * 3, config)


def begun(tokenizer: Tokenizer | tokenizers.Tokenizer) -> QuickBytes:
    """An encoder that tries at once."""
    quick = QuickBytes(tokenizer.library if isinstance(tokenizer, Tokenizer) else tokenizer)
    quick._n_characters = quick_bytes.WORTH_IT - 1
    quick.encode(["ab"])
    return quick


def library_ids(library: tokenizers.Tokenizer, texts: list[str]) -> list[list[int]]:
    return [one.ids for one in library.encode_batch(texts, add_special_tokens=False)]


OURS, DIGITS = trained(), trained(split_digits=True)
QUICK = {id(tokenizer): begun(tokenizer) for tokenizer in (OURS, DIGITS)}


@pytest.mark.parametrize("tokenizer", [OURS, DIGITS], ids=["words", "digits"])
@given(texts=st.lists(TEXT, min_size=1, max_size=8))
def test_random_texts(tokenizer: Tokenizer, texts: list[str]):
    quick, expected = QUICK[id(tokenizer)], library_ids(tokenizer.library, texts)
    assert not quick.why
    found = quick.encode(texts)
    assert found is not None
    assert all(ids is None or ids == wanted for ids, wanted in zip(found, expected, strict=True))


def test_every_character_of_common_scripts_is_proven():
    texts = [chr(i) for i in (*range(0x20, 0x600), *range(0x3041, 0x30FF), *range(0x4E00, 0x5E00), 0x1F600)]
    found = QUICK[id(OURS)].encode(texts)
    assert found == library_ids(OURS.library, texts)


def test_a_corpus_of_two_languages(shared_data: Path, monkeypatch: pytest.MonkeyPatch):
    names = sorted((shared_data / "multi30k").glob("train.*"))
    lines = [line for path in names for line in list(read_lines(path))[:1500]]
    for tokenizer in (Tokenizer.load(shared_data / "tokenizers" / "gpt2"), trained(lines[::7])):
        expected = library_ids(tokenizer.library, lines)
        monkeypatch.setattr(quick_bytes, "WORTH_IT", 1000)
        monkeypatch.setattr(quick_bytes, "PART", 100)
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
        assert tokenizer.encode_batch(lines[:100]) == expected[:100]
        assert not tokenizer.quick.why
        assert tokenizer.encode_batch(lines) == expected
        end = tokenizer.need("eos")
        assert tokenizer.encode_batch(lines[:9], eos=True) == [[*ids, end] for ids in expected[:9]]


def test_texts_with_added_tokens_and_unproven_ones_are_left_to_the_library(shared_data: Path):
    gpt2 = Tokenizer.load(shared_data / "tokenizers" / "gpt2")
    gpt2.quick = quick = begun(gpt2)
    assert not quick.why
    texts = ["a<|endoftext|>b", "plain", "é", "x" * (quick_bytes.LONGEST + 1)]
    quick._refused.add("é")
    assert [ids is None for ids in quick.encode(texts) or []] == [True, False, True, True]
    assert gpt2.encode_batch(texts) == library_ids(gpt2.library, texts)
    with pytest.raises(ValueError, match="valid Unicode"):
        gpt2.encode_batch(["half \ud800"])


def test_a_character_of_another_class_is_refused():
    # To the library é is a letter; this regular expression does not know it.
    quick = begun(OURS)
    quick._pattern = r" ?[a-zA-Z]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N} ]+| +(?= )|[^\S ]+| |."
    quick._proven.clear()
    assert quick.encode(["é", "!"]) == [None, *library_ids(OURS.library, ["!"])]


def test_what_is_not_proven_falls_back(monkeypatch: pytest.MonkeyPatch):
    assert begun(trained(lowercase=True)).why == "the tokenizer changes characters first"

    def bpe(*merges: tuple[str, str], order: int = 1, **settings: object) -> tokenizers.Tokenizer:
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        made = dict.fromkeys(a + b for a, b in merges)
        vocabulary = {piece: i for i, piece in enumerate([*letters, *list(made)[::order]])}
        found = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges), **settings))
        found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        return found

    assert not begun(bpe(("a", "b"), ("ab", "c"))).why
    assert begun(bpe(("a", "b"), ("ab", "c"), order=-1)).why == "ids do not follow the order of merges"
    twice = bpe(("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc"))
    assert begun(twice).why == "two merges make one piece"
    # a bc makes abc, but the text abc begins with ab: tiktoken would make it one piece.
    unreached = bpe(("a", "b"), ("b", "c"), ("a", "bc"))
    assert begun(unreached).why == "a piece is not what its own text becomes"
    assert begun(bpe(("a", "b"), dropout=0.5)).why == "the model is no plain byte-pair encoding"
    prefixed = bpe(("a", "b"))
    prefixed.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    assert begun(prefixed).why == "the tokenizer splits texts in another way"
    whole = tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert begun(whole).why == "the model is no plain byte-pair encoding"

    monkeypatch.setattr(quick_bytes, "find_spec", lambda _: None)
    assert begun(bpe(("a", "b"))).why == "tiktoken is not installed"


def test_added_tokens_are_those_that_the_library_looks_for():
    library = tokenizers.Tokenizer.from_str(OURS.library.to_str())
    library.add_tokens([AddedToken("ab")])
    library.encode_special_tokens = True
    quick = begun(library)
    assert quick._added == ("ab",)
    assert quick.encode(["cab", "cad"]) == [None, *library_ids(library, ["cad"])]


def test_few_characters_need_no_proof():
    tokenizer = trained()
    tokenizer.encode_batch(["a cat"])
    assert tokenizer.quick.why == "few characters so far"
    assert tokenizer.quick._core is None
