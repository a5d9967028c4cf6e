"""Tokenizer classes of encoders, as the reference library builds them from a vocabulary."""

from pathlib import Path
from typing import Any

import pytest

from clearhead.text.tokenizers import Tokenizer

transformers = pytest.importorskip("transformers")

TEXTS = ["A man rides", "  É bike\t``ä''  ", "", "men <mask>men [MASK]", "x unknown 中文"]
PIECES = [
    "<pad>",
    "<unk>",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "▁a",
    "▁man",
    "▁men",
    "▁rides",
    "▁bike",
    "▁",
    "e",
    "a",
    '"',
    "É",
]
WORDS = ["<s>", "<pad>", "</s>", "[UNK]", "a", "man", "men", "ride", "##s", "bike", "e", "ä", "中", "<mask>"]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("AlbertTokenizer", {}),
        ("AlbertTokenizer", {"do_lower_case": False, "keep_accents": True}),
        ("DebertaV2Tokenizer", {}),
        ("DebertaV2Tokenizer", {"do_lower_case": True, "split_by_punct": True, "add_prefix_space": False}),
        ("XGLMTokenizer", {}),
        ("MPNetTokenizer", {}),
        ("MPNetTokenizer", {"do_lower_case": False}),
    ],
)
def test_ids_are_the_reference_s(kind: str, settings: dict[str, Any], tmp_path: Path) -> None:
    pieces = [(piece, -float(i > 4) * i) for i, piece in enumerate(PIECES)]
    if kind == "DebertaV2Tokenizer":
        pieces[1] = ("[UNK]", 0.0)
    if kind == "XGLMTokenizer":
        pieces[:4] = [(mark, 0.0) for mark in ("<s>", "<pad>", "</s>", "<unk>")]
    vocabulary = {word: i for i, word in enumerate(WORDS)} if kind == "MPNetTokenizer" else pieces
    getattr(transformers, kind)(vocab=vocabulary, **settings).save_pretrained(tmp_path)
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tmp_path), Tokenizer.load(tmp_path)
    for text in TEXTS:
        assert ours.encode(text, special_tokens=True) == theirs(text)["input_ids"], text
