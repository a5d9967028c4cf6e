"""A text encoded in pieces is the text encoded whole, however it was read."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from clearhead.data import encoded as module
from clearhead.data.encoded import continued, encode_text, joins_at_spaces, pieces
from clearhead.data.sequences import Sequences, Shelf
from clearhead.recipe.tokenizers import TokenizerConfig, Words
from clearhead.text.schemes import joins_at_spaces as kind_joins_at_spaces
from clearhead.text.special_tokens import SpecialTokens
from clearhead.text.tokenizers import Tokenizer

WORDS = "It is a truth universally acknowledged, that 2 men (or more) must\nbe in  want of Größe: e.g. 10,000 a-b. "
TEXT = WORDS * 20
KINDS: dict[str, dict[str, Any]] = {
    "characters": {},
    "byte_bpe": {"vocab_size": 300},
    "bpe": {"vocab_size": 90, "normalization": "nfc"},
    "words": {"lowercase": True},
    "wordpiece": {"vocab_size": 120},
    "unigram": {"vocab_size": 60, "split_digits": True},
}
ADAPTER: TypeAdapter[Any] = TypeAdapter(TokenizerConfig)


def chunks(text: str, sizes: list[int]) -> Iterator[str]:
    """As a file may be read."""
    at = 0
    for size in sizes:
        yield text[at : at + size]
        at += size
    yield text[at:]


def encoded(
    documents: list[list[str]], tokenizer: Tokenizer, marks: SpecialTokens | None
) -> tuple[Sequences, module.Seen]:
    shelf = Shelf()
    seen = encode_text(documents, tokenizer, shelf.writer("x", tokenizer.vocab_size), marks=marks)
    return shelf.in_memory()["x"], seen


@pytest.fixture
def _small_pieces(monkeypatch) -> None:
    monkeypatch.setattr(module, "PIECE", 64)


@pytest.mark.parametrize("kind", KINDS)
def test_in_pieces_as_whole(kind: str, monkeypatch):
    """Ids, and the tokenizer that is trained on pieces."""
    config = ADAPTER.validate_python({"kind": kind, **KINDS[kind]})
    whole = Tokenizer.train([TEXT], config)
    monkeypatch.setattr(module, "PIECE", 64)
    joins = kind_joins_at_spaces(config)
    parts = [continued(piece, joins and i > 0) for i, piece in enumerate(pieces([TEXT]))]
    assert len(parts) > 20
    tokenizer = Tokenizer.train(parts, config)
    assert tokenizer.to_files() == whole.to_files()
    assert joins_at_spaces(tokenizer) == (joins or kind == "wordpiece")
    found, seen = encoded([list(chunks(TEXT, [1, 30, 100]))], tokenizer, None)
    assert found == [whole.encode(TEXT)]
    assert (seen.n_bytes, seen.beginning) == (len(TEXT.encode()), TEXT[:128])


@pytest.mark.usefixtures("_small_pieces")
def test_documents_long_and_short_have_their_marks():
    texts = ["a b", TEXT, "c", "", "d " * 99]
    tokenizer = Tokenizer.train(texts, Words())
    for read in ([[text] for text in texts], [list(chunks(text, [3, 9, 27])) for text in texts]):
        found, seen = encoded(read, tokenizer, SpecialTokens((2,), (3, 1)))
        assert found == [[2, *tokenizer.encode(text), 3, 1] for text in texts]
        assert (seen.n_documents, seen.beginning) == (5, "a b")
        assert encoded(read, tokenizer, None)[0] == [tokenizer.encode("\n".join(texts))]


@given(text=st.text(alphabet="ab 中\n", max_size=200), sizes=st.lists(st.integers(0, 40), max_size=8))
def test_pieces_are_the_text(text: str, sizes: list[int]):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE", 16)
        found = list(pieces(chunks(text, sizes)))
    assert "".join(found) == text
    assert found == [piece for piece in found if 0 < len(piece) <= 16]
    assert all(len(piece) > 7 for piece in found[:-1])


@pytest.mark.usefixtures("_small_pieces")
def test_without_spaces_a_cut_is_after_a_line():
    assert list(pieces(["中" * 40 + "\n" + "文" * 140])) == ["中" * 40 + "\n", "文" * 64, "文" * 64, "文" * 12]
