"""Each kind of tokenizer: what it restores, what it calls unknown, and that its files say the same again."""

import json
import os
import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clearhead.errors import UserError
from clearhead.recipe.tokenizers import BPE, ByteBPE, Characters, TokenizerConfig, Unigram, WordPiece, Words
from clearhead.text import worker
from clearhead.text.formats import bounds
from clearhead.text.merges import BytePairModel, Merge
from clearhead.text.schemes import LONGEST_WORD
from clearhead.text.tokenizers import Tokenizer
from tests.reliability.bombs import replaced, split

TEXTS = [
    "A man in an orange hat, starring at something (a dog?).",
    "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt.",
    "Two young, White males are outside near many bushes in 2024.",
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche: 1, 2, 30!",
    "l'été, «où» — 日本語のテスト",
] * 3

KINDS: list[TokenizerConfig] = [
    ByteBPE(vocab_size=320),
    BPE(vocab_size=200),
    WordPiece(vocab_size=220),
    WordPiece(vocab_size=600, bytes=True),
    Unigram(vocab_size=120),
    Words(),
    Characters(),
]
MERGING = [kind for kind in KINDS if isinstance(kind, ByteBPE | BPE)]
CONFIGS = [*KINDS, BPE(vocab_size=200, lowercase=True, split_digits=True, normalization="nfkc")]


def name(config: TokenizerConfig) -> str:
    return config.kind


@pytest.fixture(scope="module", params=KINDS, ids=name)
def tokenizer(request) -> Tokenizer:
    return Tokenizer.train(TEXTS, request.param)


@pytest.mark.parametrize("config", CONFIGS, ids=name)
def test_training_is_deterministic_and_files_say_it_all(config: TokenizerConfig, tmp_path):
    trained = Tokenizer.train(TEXTS, config)
    assert Tokenizer.train(iter(TEXTS), config).to_files() == trained.to_files()
    trained.save(tmp_path / "new" / "folder")
    loaded = Tokenizer.load(tmp_path / "new" / "folder")
    assert loaded.to_files() == trained.to_files()
    assert loaded.encode_batch(TEXTS) == trained.encode_batch(TEXTS)
    assert (loaded.pad_id, loaded.unk_id, loaded.bos_id, loaded.eos_id) == (0, 1, 2, 3)
    assert loaded.vocab_size == trained.vocab_size <= config.vocab_size


def test_special_tokens_are_added_only_when_asked_and_never_read_from_text(tokenizer: Tokenizer):
    text = TEXTS[0]
    ids = tokenizer.encode(text)
    assert tokenizer.encode(text, bos=True, eos=True) == [2, *ids, 3]
    assert tokenizer.encode_batch([text, ""], eos=True) == [[*ids, 3], [3]]
    assert tokenizer.decode([2, *ids, 3, 0, 0]) == tokenizer.decode(ids)
    assert not {0, 2, 3} & set(tokenizer.encode("<eos> <pad><bos>"))


@pytest.mark.parametrize("config", [c for c in KINDS if c.kind != "wordpiece"], ids=name)
def test_decoding_restores_what_was_seen(config: TokenizerConfig):
    tokenizer = Tokenizer.train(TEXTS, config)
    assert tokenizer.decode_batch(tokenizer.encode_batch(TEXTS)) == TEXTS
    assert not any(map(tokenizer.unknown, TEXTS))


def test_word_pieces_restore_words():
    tokenizer = Tokenizer.train(TEXTS, WordPiece(vocab_size=220))
    assert tokenizer.decode(tokenizer.encode("A man near a hat.")) == "A man near a hat."
    assert tokenizer.unknown("A man ☃ near ☃.") == ["☃"]


@given(text=st.text(st.characters(codec="utf-8"), max_size=60))
def test_bytes_restore_any_text(text: str):
    assert BYTES.decode(BYTES.encode(text)) == text
    assert BYTES.unknown(text) == []
    assert len(BYTES.tokens(BYTES.encode(text))) == len(BYTES.offsets(text))


BYTES = Tokenizer.train(TEXTS, ByteBPE(vocab_size=320))
BYTE_PIECES = Tokenizer.train(TEXTS, WordPiece(vocab_size=100, bytes=True))


@example("\N{GRINNING FACE} Wörld \N{ROCKET}" + "ก" * 3000)
@given(text=st.text(st.characters(codec="utf-8"), max_size=60))
def test_pieces_of_bytes_know_every_word(text: str):
    ids = BYTE_PIECES.encode(text)
    assert BYTE_PIECES.unk_id not in ids
    assert "".join(BYTE_PIECES.decode(ids).split()) == "".join(normalize("NFC", text).split())


@given(text=st.text("aeinr H.,(2\n", max_size=40))
def test_spaces_and_line_ends_are_restored(text: str):
    for tokenizer in SPACED:
        assert tokenizer.decode(tokenizer.encode(text)) == text


ALPHABET = [*TEXTS, *("a e i n r H . , ( 2\n\n\n(a\n(e\n(i".split(" ")), "\n", "\n\n", " \n"]
SPACED = [Tokenizer.train(ALPHABET, config) for config in (Characters(), BPE(vocab_size=150))]


def test_offsets_are_places_in_the_text(tokenizer: Tokenizer):
    text = TEXTS[1]
    places = tokenizer.offsets(text)
    assert len(places) == len(tokenizer.encode(text))
    assert "".join(text[start:end] for start, end in places).replace(" ", "") == text.replace(" ", "")
    assert all(a[1] <= b[0] for a, b in pairwise(places))


def test_tokens_are_readable():
    ids = BYTES.encode("a man\n☃")
    assert "".join(BYTES.tokens(ids)) == "a▁man⏎<0xE2><0x98><0x83>"
    words = Tokenizer.train(["the cat sat", "the dog\tran\n"], Words())
    assert words.tokens(words.encode("the cat\tran\n", bos=True)) == [
        "<bos>",
        "▁the",
        "▁cat",
        "⇥",
        "ran",
        "⏎",
    ]


def test_unknown_words():
    words = Tokenizer.train(["the cat sat.", "the (dog) ran"], Words())
    assert words.unknown("the blorf sat; blorf ran  dog's!") == ["blorf", ";", "dog", "'", "s", "!"]
    pieces = Tokenizer.train(TEXTS, BPE(vocab_size=200))
    assert pieces.unknown("Man Ωman, xΩ!") == ["Ωman", "xΩ"]


def test_digits_are_split_and_case_is_lowered():
    tokenizer = Tokenizer.train(TEXTS, Words(split_digits=True, lowercase=True))
    assert tokenizer.tokens(tokenizer.encode("In 2024 Hut")) == ["▁in", "▁2", "0", "2", "4", "▁hut"]
    joined = Tokenizer.train(TEXTS, Words())
    assert joined.tokens(joined.encode("in 2024")) == ["▁in", "▁2024"]


def merges_of(tokenizer: Tokenizer, word: str) -> list[tuple[Merge, list[str]]]:
    return BytePairModel.of(json.loads(tokenizer.library.to_str())["model"]).replay(word)


def test_the_merges_of_the_textbook_corpus():
    """Sennrich et al. 2016, figure 1: low x5, lower x2, newest x6, widest x3."""
    corpus = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
    tokenizer = Tokenizer.train(corpus, BPE(vocab_size=40, min_frequency=1))
    history = merges_of(tokenizer, "▁lowest")
    merges = [(m.left, m.right, m.rank) for m, _ in history]
    assert merges == [("e", "s", 0), ("es", "t", 1), ("l", "o", 2), ("▁", "lo", 3), ("▁lo", "w", 4)]
    assert tokenizer.tokens(tokenizer.encode("lowest")) == history[-1][1] == ["▁low", "est"]


@pytest.mark.parametrize("config", MERGING, ids=name)
def test_merges_end_in_the_encoding(config: TokenizerConfig):
    tokenizer = Tokenizer.train(TEXTS, config)
    for text in (*TEXTS, "unseen wörds 99 ☃"):
        library = tokenizer.library
        normal = text if library.normalizer is None else library.normalizer.normalize_str(text)
        assert library.pre_tokenizer is not None
        ends: list[str] = []
        for word, _ in library.pre_tokenizer.pre_tokenize_str(normal):
            history = merges_of(tokenizer, word)
            ends += history[-1][1] if history else BytePairModel.of(json.loads(library.to_str())["model"]).start(word)
        assert ends == library.encode(text, add_special_tokens=False).tokens


@pytest.mark.parametrize("config", [ByteBPE(vocab_size=300), BPE(vocab_size=300), WordPiece(vocab_size=300)])
@pytest.mark.parametrize("character", ["a", " "])
def test_a_text_without_a_break_is_trained_on_in_parts(config: TokenizerConfig, character: str):
    tokenizer = Tokenizer.train([character * 20_000 + "b"], config)
    assert max(map(len, tokenizer.library.get_vocab())) <= LONGEST_WORD + 1, "a merge of half the text costs the square"


@pytest.mark.parametrize(("prefix", "suffix"), [("##", None), (None, "</w>"), ("##", "</w>"), (None, None)])
def test_merges_with_marks_inside_and_at_the_end_of_a_word(prefix: str | None, suffix: str | None):
    from tokenizers import Tokenizer as Library
    from tokenizers.models import BPE as Model
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.trainers import BpeTrainer

    both = {"continuing_subword_prefix": prefix, "end_of_word_suffix": suffix}
    marks: dict[str, Any] = {name: mark for name, mark in both.items() if mark}
    library = Library(Model(**marks))
    library.pre_tokenizer = WhitespaceSplit()
    library.train_from_iterator(TEXTS, BpeTrainer(vocab_size=200, show_progress=False, **marks))
    model = BytePairModel.of(json.loads(library.to_str())["model"])
    words = {word for text in TEXTS for word in text.split()}
    assert sum(len(model.replay(word)) for word in words) > len(words)
    for word in words:
        history = model.replay(word)
        assert (history[-1][1] if history else model.start(word)) == library.encode(word).tokens


def test_merges_of_a_tokenizer_without_any_is_one_line():
    with pytest.raises(UserError, match="merges: expected a byte-pair tokenizer, got WordLevel; try"):
        merges_of(Tokenizer.train(TEXTS, Words()), "man")


def test_a_small_vocabulary_is_kept_to():
    for config in (BPE(vocab_size=12), Words(vocab_size=12), Characters(vocab_size=12)):
        assert Tokenizer.train(TEXTS, config).vocab_size == 12
    assert 8 <= Tokenizer.train(TEXTS, WordPiece(vocab_size=12)).vocab_size <= 12
    with pytest.raises(UserError, match=r"tokenizer: expected unigram to train with vocab_size=12, got .*\S"):
        Tokenizer.train(TEXTS, Unigram(vocab_size=12))


@pytest.mark.parametrize("texts", [[], ["", ""]])
@pytest.mark.parametrize("config", KINDS, ids=name)
def test_nothing_to_train_on_is_one_line(config: TokenizerConfig, texts: list[str]):
    assert "\n" not in refusal(lambda: Tokenizer.train(texts, config))


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(UserError) as error:
        action()
    return str(error.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"\xff\xfe",
        b'{"model": 1}',
        b'{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": ["a b"]}}',
        b'{"version": "1.0", "model": {"type": "Unigram", "vocab": [], "unk_id": 7}}',
    ],
)
def test_a_malformed_file_is_one_line(content: bytes, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(UserError, match=r"tokenizer\.json: expected a tokenizer, got ") as error:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(error.value)


def test_half_a_character_is_one_line():
    with pytest.raises(UserError, match=r"text: expected text that is valid Unicode, got "):
        BYTES.encode("\ud800")


def with_rules(rules: dict[str, Any], trained: Tokenizer | None = None) -> Tokenizer:
    """A tokenizer with other rules."""
    files = (trained or Tokenizer.train(["a a"], Words())).to_files()
    document = {**json.loads(files["tokenizer.json"]), **rules}
    return Tokenizer.from_files({"tokenizer.json": json.dumps(document).encode()}, where="t")


def test_a_panic_of_the_library_is_one_line_and_shows_nothing_else(capfd, monkeypatch):
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # Other tests may have left some.
    tokenizer = with_rules(split("(a+)+$"))  # Of exponential time.
    for read in (tokenizer.encode, tokenizer.offsets):
        with pytest.raises(UserError, match="got a failure of the library: Onig"):
            read("a" * 200 + "!")
    assert capfd.readouterr() == ("", "")
    os.write(2, b"as before")
    assert capfd.readouterr().err == "as before"


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
@pytest.mark.parametrize(
    "rules", [replaced({"Regex": "."}, "a" * 1000, 3), replaced({"String": "a"}, "aa", 40)], ids=["regex", "doublings"]
)
def test_rules_that_multiply_a_text_end_no_process(rules: dict[str, Any], monkeypatch):
    monkeypatch.setattr(worker, "MEMORY", 1 << 28)
    monkeypatch.setattr(worker, "SECONDS", 1)
    tokenizer = with_rules(rules)
    for _ in range(2):
        with pytest.raises(UserError, match=r"^tokenizer: expected rules that need at most "):
            tokenizer.encode("aaaaaaa")
    assert tokenizer.encode("") == []
    known = tokenizer.library.token_to_id("▁a")
    assert known is not None
    assert tokenizer.decode([known]) == "a"


def test_a_text_that_takes_all_its_time_does_not_hold_others(monkeypatch):
    monkeypatch.setattr(worker, "SECONDS", 1)
    tokenizer = with_rules(replaced({"Regex": " +$"}, "", 1))
    said: list[str] = []

    def bomb() -> None:
        with pytest.raises(UserError, match="expected rules that need at most") as error:
            tokenizer.encode("a" + " " * 90_000 + "x")
        said.append(str(error.value))

    thread = threading.Thread(target=bomb)
    thread.start()
    assert tokenizer.encode("") == []
    assert not said, "the other text waited"
    thread.join()
    assert said


def test_a_decoder_that_fails_is_one_line():
    steps = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": ""},
        {"type": "Strip", "content": "a", "start": 0, "stop": 9},  # Panics where nothing is left.
    ]
    tokenizer = with_rules({"decoder": {"type": "Sequence", "decoders": steps}})
    with pytest.raises(UserError, match=r"^ids: expected tokens that the tokenizer's rules can join, got a failure of"):
        tokenizer.decode(tokenizer.encode("a a"))


def test_what_works_apart_gives_what_the_library_gives():
    trained = Tokenizer.train(["the man sees the dog"] * 3, BPE(vocab_size=60))
    tokenizer = with_rules(split(r"▁?[a-z]+(?= ?)|x*y|[\s\S]"), trained)
    assert isinstance(tokenizer.library, bounds.TokenizerApart)
    text, library = "the dog sees", tokenizer.library.library
    expected = library.encode(text)
    found = tokenizer.library.encode(text)
    assert (found.ids, found.tokens, found.offsets) == (expected.ids, expected.tokens, expected.offsets)
    assert tokenizer.decode(found.ids) == library.decode(expected.ids)
    assert tokenizer.offsets(text)
    pairs = tokenizer.templated("{begin} $A {end}", "{begin} $A {end} $B:1 {end}:1")
    assert isinstance(pairs.library, bounds.TokenizerApart)
    for limit in range(3, 12):
        library = pairs.library.library
        library.enable_truncation(limit)
        expected = library.encode(text, "the man")
        library.no_truncation()
        assert pairs.encode_pair(text, "the man", limit=limit) == (expected.ids, expected.type_ids)


def test_settings_that_are_no_object_are_one_line(tmp_path):
    Tokenizer.train(TEXTS, Words()).save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[1]")
    assert "tokenizer_config.json: expected a JSON object, got list" in refusal(lambda: Tokenizer.load(tmp_path))


def test_special_tokens_of_a_file_from_elsewhere(tmp_path):
    Tokenizer.train(TEXTS, Words()).save(tmp_path)
    settings: dict[str, object] = {
        "pad_token": None,
        "unk_token": {"content": "<unk>"},
        "cls_token": "<bos>",
        "sep_token": "?none?",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    loaded = Tokenizer.load(tmp_path)
    # A named token that is not there is added, as the reference library does.
    assert (loaded.pad_id, loaded.unk_id, loaded.bos_id, loaded.eos_id) == (None, 1, 2, loaded.vocab_size - 1)
    assert loaded.encode("<bos>") == [2]  # no split_special_tokens: read as the token, as its library does
    (tmp_path / "tokenizer_config.json").unlink()
    loaded = Tokenizer.load(tmp_path)
    assert loaded.unk_id == 1, "the model itself names what is unknown"
    settings["sep_token"] = None
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"expected eos_token in tokenizer_config.json, got none; try"):
        Tokenizer.load(tmp_path).encode("A man", eos=True)


def test_ids_of_a_well_known_tokenizer(shared_data: Path):
    loaded = Tokenizer.load(shared_data / "tokenizers" / "bert-base-uncased")
    assert loaded.vocab_size == 30522
    ids = loaded.encode("Hello, world! Unbelievable.")
    assert ids == [7592, 1010, 2088, 999, 23653, 1012]
    assert len(loaded.encode("a " * 300)) == 300, "padding and truncation in the file are switched off"
