"""Texts that are too long are found to be so before they are tokenized."""

import pytest

from clearhead.serve.service import FIRST, TooLong, bounded, extent, most_characters
from tests.serve.tiny import writer_model

MOST = 10


class Words:
    """A tokenizer of words, and how much it had to read."""

    def __init__(self) -> None:
        self.n_read = 0

    def __call__(self, text: str) -> list[int]:
        self.n_read += len(text)
        return [len(word) for word in text.split()]


def read(text: str, words: Words) -> list[int]:
    return bounded(text, words, most_tokens=MOST, most_characters=1000)


def test_a_short_text_is_tokenized_once():
    for text in ("one two", "a " * MOST, ""):
        words = Words()
        assert read(text, words) == Words()(text)
        assert words.n_read == len(text)


def test_a_long_text_of_few_tokens_is_read():
    for text in ("a" * 1000, " " * 1000, "one" + " " * 990 + "two"):
        words = Words()
        assert read(text, words) == Words()(text)
        assert words.n_read <= 3 * len(text)


def test_more_characters_than_tokens_can_have_are_not_tokenized():
    words = Words()
    with pytest.raises(TooLong, match="1001 characters"):
        read("a" * 1001, words)
    assert words.n_read == 0


def test_only_the_beginning_of_many_tokens_is_tokenized():
    words = Words()
    with pytest.raises(TooLong, match="more, in 1000 characters"):
        read("a " * 500, words)
    assert words.n_read == FIRST * MOST


def test_a_few_tokens_too_many_are_counted():
    with pytest.raises(TooLong, match=r"^11$"):
        read("a " * (MOST + 1), Words())


def test_every_token_has_room():
    tokenizer = writer_model().tokenizer
    widest = max(tokenizer.library.get_vocab(), key=len)
    assert most_characters(tokenizer, 7) >= 7 * len(widest)


def test_extent():
    assert extent({"role": "user", "content": ["ab", {"c": None}], "n": 3}) == 5 + 4 + 8 + 2 + 2 + 2 + 1 + 2 + 1
    assert extent([[], [[]]]) == 3
