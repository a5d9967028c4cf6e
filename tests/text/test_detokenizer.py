"""Text token by token: whole characters, up to a stop string, and in the end the text as it is decoded at once."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.recipe.tokenizers import BPE, ByteBPE, Characters, TokenizerConfig, Unigram, WordPiece, Words
from clearhead.text.detokenizer import UNFINISHED, Detokenizer
from clearhead.text.tokenizers import Tokenizer
from tests.serve.tiny import texts_of

TEXTS = [
    "Fünf Äpfel für 3 €, naïve façade \N{SNOWMAN} \N{GRINNING FACE} 日本語 \N{FAMILY}",
    "the keys to the cabinet are on the table",
] * 4
KINDS: list[TokenizerConfig] = [
    ByteBPE(vocab_size=300),
    BPE(vocab_size=120),
    WordPiece(vocab_size=120),
    Unigram(vocab_size=80),
    Words(),
    Characters(),
]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.kind)
def tokenizer(request) -> Tokenizer:
    return Tokenizer.train(TEXTS, request.param)


def shown(writer: Detokenizer, tokens: list[int]) -> tuple[list[str], bool]:
    """The pieces, and whether it has come to a stop string."""
    pieces: list[str] = []
    for token in tokens:
        stops = writer.add([token])
        pieces.append(writer.take())
        if stops:
            return pieces, True
    return [*pieces, writer.take(last=True)], False


def test_a_real_text_is_what_it_is_when_decoded_at_once(tokenizer: Tokenizer):
    for text in TEXTS[:2]:
        ids = tokenizer.encode(text)
        for n in (0, 1, len(ids) // 2):
            pieces, _ = shown(Detokenizer(tokenizer, ids[:n]), ids[n:])
            assert "".join(pieces) == texts_of(tokenizer, ids[:n], ids[n:])
            assert not any(UNFINISHED in piece for piece in pieces)


def test_any_bytes_are_what_they_are_when_decoded_at_once():
    tokenizer = Tokenizer.train(TEXTS, ByteBPE(vocab_size=300))
    draw = random.Random(0)
    for _ in range(200):
        ids = [draw.randrange(4, tokenizer.vocab_size) for _ in range(30)]
        pieces, _ = shown(Detokenizer(tokenizer, ids[:5]), ids[5:])
        assert "".join(pieces) == texts_of(tokenizer, ids[:5], ids[5:])


def test_special_tokens_say_nothing(tokenizer: Tokenizer):
    ids = tokenizer.encode(TEXTS[1])
    special = [tokenizer.need("bos"), *ids[:3], tokenizer.need("pad"), tokenizer.need("eos"), *ids[3:]]
    pieces, _ = shown(Detokenizer(tokenizer, special[:1]), special[1:])
    assert "".join(pieces) == texts_of(tokenizer, special[:1], special[1:])


def test_the_cost_of_a_token_does_not_grow(monkeypatch):
    tokenizer = Tokenizer.train(TEXTS, ByteBPE(vocab_size=300))
    ids = tokenizer.encode(TEXTS[1]) * 20
    most, decode = [0], tokenizer.decode
    writer = Detokenizer(tokenizer, ids[:10])
    monkeypatch.setattr(tokenizer, "decode", lambda some: most.append(len(some)) or decode(some))
    shown(writer, ids[10:])
    assert max(most[3:]) <= 12


@pytest.mark.parametrize("stop", ["cab", "e keys to t", "\N{GRINNING FACE}", "日本", " ", "für 3 €, n", "table"])
def test_a_stop_string_across_tokens_is_never_shown(tokenizer: Tokenizer, stop: str):
    for text in TEXTS[:2]:
        ids = tokenizer.encode(text)
        whole = texts_of(tokenizer, ids[:1], ids[1:])
        pieces, stopped = shown(Detokenizer(tokenizer, ids[:1], ["never there", stop]), ids[1:])
        assert stopped == (stop in whole)
        assert "".join(pieces) == whole.split(stop)[0]


LETTERS = Tokenizer.train(["abxc"], Characters())


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), max_size=2))
def test_pieces_end_before_the_first_stop_string(text: str, stop: list[str]):
    pieces = list(Detokenizer(LETTERS, [], stop).pieces(LETTERS.encode(text)))
    assert "".join(pieces) == text[: min((text.index(word) for word in stop if word in text), default=len(text))]
    assert "" not in pieces


def test_pieces_hold_back_the_beginning_of_a_stop_string_and_read_no_further_than_its_end():
    assert list(Detokenizer(LETTERS, [], ["xy", "bxd"]).pieces(LETTERS.encode("abxc"))) == ["a", "bxc"]
    assert list(Detokenizer(LETTERS, [], ["xc"]).pieces(LETTERS.encode("abx"))) == ["a", "b", "x"]
    tokens = iter(LETTERS.encode("abxca"))
    assert list(Detokenizer(LETTERS, [], ["xc"]).pieces(tokens)) == ["a", "b"]
    assert len(list(tokens)) == 1
