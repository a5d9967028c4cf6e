"""How a text was cut: pieces join to words, words to the text, and merges lead from the one to the other."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.explorer.answering.words import tokenized
from clearhead.recipe.tokenizers import BPE, ByteBPE, Characters, TokenizerConfig, Unigram, WordPiece, Words
from clearhead.text.tokenizers import Tokenizer
from tests.small_models import TEXTS
from tests.text.test_formats import pieces_model

CONFIGS: dict[str, TokenizerConfig] = {
    "byte_bpe": ByteBPE(vocab_size=300),
    "bpe": BPE(vocab_size=60),
    "unigram": Unigram(vocab_size=60),
    "wordpiece": WordPiece(vocab_size=60),
    "words": Words(),
    "characters": Characters(),
}
TOKENIZERS = {name: Tokenizer.train(TEXTS, config) for name, config in CONFIGS.items()}


@pytest.mark.parametrize("name", CONFIGS)
def test_words_have_their_places(name: str):
    text = "one two one  three one"
    reply = tokenized(TOKENIZERS[name], text)
    words = reply["words"]
    named = [(word["text"], tuple(word["span"])) for word in words if word["text"].strip()]
    if name != "characters":
        assert named == [("one", (0, 3)), ("two", (4, 7)), ("one", (8, 11)), ("three", (13, 18)), ("one", (19, 22))]
    assert all(text[start:end] == found for found, (start, end) in named)
    assert [token["id"] for word in words for token in word["tokens"]] == TOKENIZERS[name].encode(text)
    assert reply["unknown"] == []


@pytest.mark.parametrize("name", ["byte_bpe", "bpe"])
def test_merges_lead_from_characters_to_tokens(name: str):
    tokenizer = TOKENIZERS[name]
    merged = 0
    for word in tokenized(tokenizer, "seven three eleven fünf")["words"]:
        pieces = word["start"]
        assert all(len(piece) == 1 or piece in ("<unk>", "<0xC3>", "<0xBC>") for piece in pieces)
        for merge in word["merges"]:
            at = next(i for i in range(len(pieces)) if pieces[i : i + 2] == [merge["left"], merge["right"]])
            assert merge["pieces"] in (
                [*pieces[:i], *[merge["pieces"][i]], *pieces[i + 2 :]] for i in range(at, len(pieces) - 1)
            )
            pieces, merged = merge["pieces"], merged + 1
        assert pieces == [token["text"] for token in word["tokens"]]
    assert merged > 4


def test_words_that_a_tokenizer_does_not_know_are_told():
    assert tokenized(TOKENIZERS["words"], "one xyz two xyz")["unknown"] == ["xyz"]
    assert tokenized(TOKENIZERS["words"], "") == {"words": [], "unknown": []}


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(list(CONFIGS)), st.text(max_size=40))
def test_any_text_is_cut_without_loss_of_tokens(name: str, text: str):
    words = tokenized(TOKENIZERS[name], text)["words"]
    assert [token["id"] for word in words for token in word["tokens"]] == TOKENIZERS[name].encode(text)
    for word in words:
        start, end = word["span"]
        assert 0 <= start <= end <= len(text)
        assert (word["merges"][-1]["pieces"] if word["merges"] else word["start"]) == [
            t["text"] for t in word["tokens"]
        ]


def test_a_tokenizer_of_two_sides_cuts_targets_otherwise(tmp_path):
    for name, size in (("source.spm", 90), ("target.spm", 130)):
        pieces_model(tmp_path, name, vocab_size=size)
    from sentencepiece import SentencePieceProcessor

    models = [SentencePieceProcessor(str(tmp_path / name)) for name in ("source.spm", "target.spm")]
    pieces = dict.fromkeys(["</s>", "<unk>", *(m.id_to_piece(i) for m in models for i in range(3, len(m))), "<pad>"])
    (tmp_path / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer"}))
    tokenizer, text = Tokenizer.load(tmp_path), "the cat and the dog and the cat"
    for target in (False, True):
        words = tokenized(tokenizer, text, target=target)["words"]
        tokens = [token for word in words for token in word["tokens"]]
        assert [token["id"] for token in tokens] == tokenizer.encode(text, target=target)
        spans = [tuple(token["span"]) for token in tokens if token["span"] and token["span"][0] < token["span"][1]]
        assert spans == sorted(spans)
        assert "".join(text[start:end] for start, end in spans).replace(" ", "") == text.replace(" ", "")
        assert all(word["merges"] == [] for word in words)
