"""Tokenizers in the metadata of GGUF files: as the files they came from, and what is refused by name."""

import re
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from clearhead.errors import UserError
from clearhead.recipe.tokenizers import ByteBPE, Unigram
from clearhead.text.formats.byte_pairs import BYTE_VALUES
from clearhead.text.formats.gguf import PREFIX, SAMPLES, WHOLE, open_metadata, table, to_metadata
from clearhead.text.tokenizers import Tokenizer

TEXTS = [*SAMPLES, "Once upon a time, there was a little girl named Lily.", "x" * 50, "1234567890", "\n\n\n  a\n \n b"]


def metadata_of(tokenizer: Tokenizer) -> dict[str, Any]:
    return to_metadata(tokenizer.library, tokenizer.settings, n_rows=tokenizer.vocab_size)


def opened(metadata: dict[str, Any]) -> Tokenizer:
    found = open_metadata(metadata, "x.gguf")
    assert found is not None
    return Tokenizer(found.library, found.settings)


def check(ours: Tokenizer, theirs: Tokenizer, texts: list[str]) -> None:
    for marks in (False, True):
        ids = ours.encode_batch(texts, special_tokens=marks)
        assert ids == theirs.encode_batch(texts, special_tokens=marks)
    assert ours.decode_batch(ids) == theirs.decode_batch(ids)


@pytest.fixture
def few() -> dict[str, Any]:
    """All bytes, and a few merges."""
    merges = ["t h", "th e", "Ġ the", "a n", "an d", "1 2", "12 3", "Ġ a"]
    tokens = [*BYTE_VALUES, *(merge.replace(" ", "") for merge in merges), "<|endoftext|>"]
    kinds = [1] * (len(tokens) - 1) + [3]
    ends = {f"{PREFIX}{end}_token_id": len(tokens) - 1 for end in ("bos", "eos")}
    lists = {f"{PREFIX}tokens": tokens, f"{PREFIX}token_type": kinds, f"{PREFIX}merges": merges}
    return {f"{PREFIX}model": "gpt2", f"{PREFIX}pre": "gpt-2", **lists, **ends}


@pytest.fixture
def lines(shared_data: Path) -> list[str]:
    path = shared_data / "tinyshakespeare" / "input.txt"
    path = path if path.exists() else next((shared_data / "tinyshakespeare").glob("*.txt"))
    with path.open(encoding="utf-8") as file:
        return [*islice(file, 500)]


@pytest.mark.parametrize(
    "name", ["stories260K", *(pytest.param(name, marks=pytest.mark.slow) for name in ("llama2", "gpt2"))]
)
def test_there_and_back(name: str, shared_data: Path, lines: list[str]) -> None:
    tokenizer = Tokenizer.load(shared_data / "tokenizers" / name)
    metadata = metadata_of(tokenizer)
    assert WHOLE not in metadata
    back = opened(metadata)
    check(back, tokenizer, [*TEXTS, *lines])
    assert (back.bos_id, back.eos_id, back.unk_id) == (tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id)


@pytest.mark.slow
def test_as_the_format_keeps_a_sentencepiece_file(shared_data: Path, lines: list[str]) -> None:
    """With the file's own scores, as other programs write them."""
    sentencepiece = pytest.importorskip("sentencepiece")
    path = shared_data / "tokenizers" / "llama2" / "tokenizer.model"
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    kinds = [
        2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i) else 1
        for i in range(len(model))
    ]
    metadata = {
        f"{PREFIX}model": "llama",
        f"{PREFIX}tokens": [model.id_to_piece(i) for i in range(len(model))],
        f"{PREFIX}scores": [float(model.get_score(i)) for i in range(len(model))],
        f"{PREFIX}token_type": kinds,
        f"{PREFIX}bos_token_id": 1,
        f"{PREFIX}eos_token_id": 2,
        "tokenizer.chat_template": "{{ messages }}",
    }
    ours = opened(metadata)
    for text in [*TEXTS, *lines]:
        assert ours.encode(text, special_tokens=True) == [1, *model.encode(text)], text
    assert ours.chat_template == "{{ messages }}"
    silent = opened(metadata | {f"{PREFIX}add_bos_token": False, f"{PREFIX}add_eos_token": True})
    assert silent.encode("a b", special_tokens=True) == [*model.encode("a b"), 2]


@pytest.mark.parametrize("split", [split.names[0] for split in table().splits])
def test_every_way_to_split_is_found_again(split: str, few: dict[str, Any]) -> None:
    metadata = few | {f"{PREFIX}pre": split}
    first = opened(metadata)
    again = metadata_of(first)
    assert again[f"{PREFIX}pre"] == split
    assert again[f"{PREFIX}add_bos_token"] == (split in ("llama-bpe", "tekken"))
    check(opened(again), first, TEXTS)


def test_ways_to_split_are_those_of_their_own_programs(few: dict[str, Any]) -> None:
    regex = pytest.importorskip("regex")
    patterns = {
        "gpt-2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        "llama-bpe": (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
            r"|\s+(?!\S)|\s+"
        ),
        "tekken": (
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
            r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
    }
    for name, pattern in patterns.items():
        words = opened(few | {f"{PREFIX}pre": name}).library.pre_tokenizer
        for text in filter(None, TEXTS):
            spans = [text[start:end] for _, (start, end) in words.pre_tokenize_str(text)]
            assert "".join(spans) == text
            assert spans == regex.findall(pattern, text), name


def test_special_tokens(few: dict[str, Any]) -> None:
    metadata, n = few, len(few[f"{PREFIX}tokens"])
    a, b = (few[f"{PREFIX}tokens"].index(letter) for letter in "ab")
    tokens = [*metadata[f"{PREFIX}tokens"], "<|im_start|>", "<think>", "[PAD]"]
    kinds = [*metadata[f"{PREFIX}token_type"], 3, 4, 5]
    more = {f"{PREFIX}tokens": tokens, f"{PREFIX}token_type": kinds, f"{PREFIX}bos_token_id": n}
    ours = opened(metadata | more | {f"{PREFIX}add_bos_token": True})
    assert ours.encode("a<|im_start|>b<think>", special_tokens=True) == [n, a, n, b, n + 1]
    assert ours.decode([a, n, n + 1, b]) == "a<think>b"
    assert ours.bos_id == n


def test_a_way_to_split_that_is_not_named_follows_from_the_merges(few: dict[str, Any]) -> None:
    check(opened({key: value for key, value in few.items() if key != f"{PREFIX}pre"}), opened(few), TEXTS)


@pytest.mark.parametrize("config", [ByteBPE(vocab_size=300), Unigram(vocab_size=200)])
def test_a_tokenizer_of_another_kind_is_kept_whole(config: Any) -> None:
    tokenizer = Tokenizer.train([text for text in TEXTS if text.strip()] * 3, config)
    metadata = metadata_of(tokenizer)
    assert WHOLE in metadata
    check(opened(metadata), tokenizer, TEXTS)
    assert opened(metadata).eos_id == tokenizer.eos_id


BYTES = {f"{PREFIX}model": "gpt2", f"{PREFIX}tokens": ["a", "b", "ab"], f"{PREFIX}token_type": [1, 1, 1]}
PIECES = {
    f"{PREFIX}model": "llama",
    f"{PREFIX}tokens": ["<unk>", "<s>", "</s>", "a"],
    f"{PREFIX}token_type": [2, 3, 3, 1],
    f"{PREFIX}scores": [0.0, 0.0, 0.0, -1.0],
}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (
            {f"{PREFIX}model": "rwkv"},
            "tokenizer.ggml.model: expected one of llama, gpt2, none, no_vocab, got 'rwkv'; try",
        ),
        (BYTES, "tokenizer.ggml.merges: expected a list of str, got none"),
        (
            BYTES | {f"{PREFIX}merges": ["a c"]},
            "tokenizer.ggml.merges: expected two tokens that spell a third, got 'a c'",
        ),
        (
            BYTES | {f"{PREFIX}merges": ["a b"], f"{PREFIX}pre": "poro"},
            "tokenizer.ggml.pre: expected a way to split texts",
        ),
        (
            BYTES | {f"{PREFIX}token_type": [1]},
            "tokenizer.ggml.token_type: expected 3 values, one for each token, got 1",
        ),
        (
            BYTES | {f"{PREFIX}merges": ["a b"], f"{PREFIX}pre": "gpt-2", f"{PREFIX}eos_token_id": 7},
            "tokenizer.ggml.eos_token_id: expected the id of a token, got 7",
        ),
        (BYTES | {f"{PREFIX}tokens": ["a", "a", "b"]}, "tokenizer.ggml.tokens: expected each token once"),
        (PIECES | {f"{PREFIX}scores": None}, "tokenizer.ggml.scores: expected a list of float, got none"),
        (
            PIECES | {f"{PREFIX}unknown_token_id": 3},
            "tokenizer.ggml.tokens: expected pieces of SentencePiece, got unk_id",
        ),
        (
            PIECES | {f"{PREFIX}token_type": [2, 3, 3, 9]},
            "tokenizer.ggml.tokens: expected pieces of SentencePiece, got 9",
        ),
        ({f"{PREFIX}model": "gpt2", WHOLE: "{}"}, " expected a tokenizer, got"),
    ],
)
def test_what_is_refused(metadata: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError) as error:
        open_metadata(metadata, "x.gguf")
    assert re.match("x.gguf:" + re.escape(expected), str(error.value)), str(error.value)


def test_no_tokenizer() -> None:
    assert open_metadata({}, "x.gguf") is None
    assert open_metadata({f"{PREFIX}model": "no_vocab"}, "x.gguf") is None
