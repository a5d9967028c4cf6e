"""Tokenizers that mark texts with a language: against the reference library, and asked for languages by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import load
from clearhead.cli.use.translate import translate
from clearhead.errors import UserError
from clearhead.text.languages import language, languages, reading
from clearhead.text.tokenizers import Tokenizer
from tests.parity.cases import base
from tests.parity.harness import Case, reference

transformers = pytest.importorskip("transformers")

TEXTS = ["a man rides", "  a  bike\tä  ", "", "men <mask> men", "x unknown"]
WORDS = ["▁a", "▁man", "▁men", "▁rides", "▁bike", "▁", "a", "ä", "n", "m", "e", "x"]
PAIRS = [("▁", "a"), ("m", "e"), ("me", "n"), ("▁", "men"), ("▁", "n")]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def scored(*codes: str) -> list[tuple[str, float]]:
    return [(name, 0.0) for name in SPECIAL] + [(w, -i - 1.0) for i, w in enumerate(WORDS)] + [(c, 0.0) for c in codes]


def made(kind: str, folder: Path, **settings: Any) -> Any:
    """A tokenizer of the reference library, saved in the folder as the hub has it."""
    if kind == "NllbTokenizer":
        names = [*SPECIAL, *WORDS, "me", "men", "▁n", "eng_Latn", "deu_Latn", "zho_Hans", "zho_Hant", "<mask>"]
        ids = {name: i for i, name in enumerate(dict.fromkeys(names))}
        codes = [name for name in names if "_" in name and name not in WORDS and "▁" not in name]
        found = transformers.NllbTokenizer(vocab=ids, merges=PAIRS, additional_special_tokens=codes, **settings)
    else:
        module = transformers.models.mbart50.tokenization_mbart50 if "50" in kind else transformers.models.mbart
        codes = getattr(module, "tokenization_mbart", module).FAIRSEQ_LANGUAGE_CODES
        found = getattr(transformers, kind)(vocab=scored(*codes, "<mask>"), **settings)
    found.save_pretrained(folder)
    return found


CASES = [
    ("MBartTokenizer", {}),
    ("MBartTokenizer", {"src_lang": "ro_RO"}),
    ("MBart50Tokenizer", {"src_lang": "de_DE"}),
    ("NllbTokenizer", {}),
    ("NllbTokenizer", {"src_lang": "deu_Latn"}),
]


@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_ids_are_the_reference_s(kind: str, settings: dict[str, str], tmp_path):
    made(kind, tmp_path, **settings)
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tmp_path), Tokenizer.load(tmp_path)
    for text in TEXTS:
        expected = theirs(text)["input_ids"]
        assert ours.encode(text, special_tokens=True) == expected, text
    theirs.src_lang = "de_DE" if "MBart" in kind else "deu_Latn"
    known = languages(ours)
    assert known["de" if "MBart" in kind else "deu"] == theirs.src_lang
    other = reading(ours, theirs.src_lang, known)
    assert other.encode(TEXTS[0], special_tokens=True) == theirs(TEXTS[0])["input_ids"]
    other.save(tmp_path / "other")
    assert Tokenizer.load(tmp_path / "other").encode(TEXTS[0], special_tokens=True) == theirs(TEXTS[0])["input_ids"]


def test_a_language_that_is_not_there(tmp_path):
    made("NllbTokenizer", tmp_path)
    known = languages(Tokenizer.load(tmp_path))
    assert "zho" not in known
    with pytest.raises(UserError, match=r"--to klingon: expected a language of the model \(deu_Latn, eng_Latn, "):
        language("klingon", known, "--to")


def test_translate_from_and_to_by_name(tmp_path, capsys):
    """The first word is the token of the target's language; the source's stands before the text."""
    tokenizer = made("NllbTokenizer", tmp_path)
    config = {**base("m2m_100"), "vocab_size": len(tokenizer), "pad_token_id": 1}
    theirs = reference(Case("m2m_100", "", "M2M100ForConditionalGeneration", config))
    theirs.generation_config.update(max_new_tokens=6, num_beams=2, max_length=None)
    theirs.save_pretrained(tmp_path)
    tokenizer.src_lang = "deu_Latn"
    batch = tokenizer(TEXTS[:1], return_tensors="pt")
    with torch.no_grad():
        first = tokenizer.convert_tokens_to_ids("eng_Latn")
        ids = theirs.eval().generate(**batch, forced_bos_token_id=first)
    expected = tokenizer.batch_decode(ids, skip_special_tokens=True)[0]
    translate(str(tmp_path), TEXTS[0], to="eng", source="deu", beams=2)
    assert capsys.readouterr().out.strip() == expected.strip()
    assert load(tmp_path).generation.forced_first_id is None
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "m2m_100"
    with pytest.raises(UserError, match="--from fr: expected a language"):
        translate(str(tmp_path), TEXTS[0], source="fr")
