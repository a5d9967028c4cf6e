"""The tokenizer of SigLIP, from its SentencePiece file, against the reference library's."""

import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.text.tokenizers import Tokenizer
from tests.later import later
from tests.text.test_formats import pieces_model

later("transformers")

TEXTS = [
    "A photo of the dog.",
    "  Two  dogs,\n they're running!",
    "THE END? 12:30",
    "",
    "the (big) dog-house's door",
    "naïve café",
    "a_b/c",
]


def check(folder: Path) -> None:
    import transformers

    theirs = transformers.SiglipTokenizer.from_pretrained(folder)
    ours = Tokenizer.load(folder)
    for text in TEXTS:
        assert ours.encode(text, special_tokens=True) == theirs(text)["input_ids"], text
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"], text
    assert (ours.pad_id, ours.eos_id, ours.unk_id) == (theirs.pad_token_id, theirs.eos_token_id, theirs.unk_token_id)


@pytest.mark.parametrize("settings", [{}, {"do_lower_case": False}])
def test_pieces_without_punctuation(settings: dict[str, Any], tmp_path: Path) -> None:
    pieces_model(tmp_path, "spiece.model", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "SiglipTokenizer", **settings}))
    check(tmp_path)
