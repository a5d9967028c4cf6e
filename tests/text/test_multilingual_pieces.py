"""Tokenizer classes that build theirs from pieces: ids as the reference library numbers them, in many scripts."""

import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.errors import UserError
from clearhead.text.languages import languages
from clearhead.text.tokenizers import Tokenizer
from tests.later import later

sentencepiece = later("sentencepiece")
transformers = later("transformers")

TEXTS = [
    "A man in an orange hat, starring at something (a dog?), in 1999.",
    "Ein Mann mit einem orangefarbenen Hut; die Männer: 30!",
    "Быстрая коричневая лиса прыгает через собаку.",
    "Η γρήγορη καφέ αλεπού πηδάει",
    "الثعلب البني السريع يقفز فوق الكلب",
    "השועל החום המהיר קופץ",
    "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर",
    "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้าม",
    "敏捷的棕色狐狸跳过了懒狗",
    "素早い茶色の狐がのろまな犬を飛び越える",
    "빠른 갈색 여우가 게으른 개를 뛰어넘는다",
    "Con cáo nâu nhanh nhẹn nhảy qua con chó lười",
    "unknown ꙮ 𝔘 and 😀",
    "  Two  dogs,\n they're running! naïve café a_b/c",
    "",
]
FILE = "sentencepiece.bpe.model"
GEMMA: dict[str, Any] = {
    "model_type": "bpe",
    "byte_fallback": True,
    "vocab_size": 700,
    "pad_id": 0,
    "eos_id": 1,
    "bos_id": 2,
    "unk_id": 3,
    "pad_piece": "<pad>",
    "eos_piece": "<eos>",
    "bos_piece": "<bos>",
    "user_defined_symbols": ["<mask>", "<start_of_turn>", "<end_of_turn>"],
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "add_dummy_prefix": False,
}
ENDS = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
FOLDERS: dict[str, tuple[str, str, str, dict[str, Any], dict[str, Any]]] = {
    "mbart": (FILE, "MBartTokenizer", "mbart", {"src_lang": "de_DE"}, {}),
    "mbart50": (FILE, "MBart50Tokenizer", "mbart", {}, {}),
    "gemma": ("tokenizer.model", "GemmaTokenizer", "gemma2", {"add_bos_token": True}, GEMMA),
    "m2m_100": (FILE, "M2M100Tokenizer", "m2m_100", {"src_lang": "fr"}, {"model_type": "bpe"}),
    "nllb": (FILE, "NllbTokenizer", "m2m_100", {"src_lang": "fra_Latn"}, {"model_type": "bpe"}),
    "xglm": (FILE, "XGLMTokenizer", "xglm", {}, {}),
    "siglip": ("spiece.model", "SiglipTokenizer", "siglip", {}, ENDS),
    "siglip cased": ("spiece.model", "SiglipTokenizer", "siglip", {"do_lower_case": False}, ENDS),
}


@pytest.fixture
def folder(request, tmp_path) -> Path:
    file, kind, model_type, settings, options = FOLDERS[request.param]
    given = {"vocab_size": 400, "hard_vocab_limit": False, "minloglevel": 2, **options}
    prefix = str(tmp_path / "made")
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXTS * 5), model_prefix=prefix, **given)
    (tmp_path / "made.model").rename(tmp_path / file)
    (tmp_path / "made.vocab").unlink()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, **settings}))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    if request.param == "m2m_100":
        pieces = sentencepiece.SentencePieceProcessor(str(tmp_path / file))
        names = ["<s>", "<pad>", "</s>", "<unk>", *(pieces.id_to_piece(i) for i in reversed(range(3, len(pieces))))]
        (tmp_path / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    return tmp_path


WORDS = ["<s>", "<pad>", "</s>", "[UNK]", "a", "man", "men", "ride", "##s", "bike", "e", "ä", "中", "<mask>"]
PIECES = ["▁a", "▁man", "▁men", "▁rides", "▁bike", "▁", "e", "a", '"', "É"]
MARKS = {
    "AlbertTokenizer": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
    "DebertaV2Tokenizer": ["<pad>", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    "XGLMTokenizer": ["<s>", "<pad>", "</s>", "<unk>", "[MASK]"],
}


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        *((kind, {}) for kind in (*MARKS, "MPNetTokenizer")),
        ("AlbertTokenizer", {"do_lower_case": False, "keep_accents": True}),
        ("DebertaV2Tokenizer", {"do_lower_case": True, "split_by_punct": True, "add_prefix_space": False}),
        ("MPNetTokenizer", {"do_lower_case": False}),
    ],
)
def test_ids_of_a_class_of_encoders(kind: str, settings: dict[str, Any], tmp_path):
    pieces = [(piece, -float(i > 4) * i) for i, piece in enumerate([*MARKS.get(kind, ()), *PIECES])]
    vocabulary = pieces if kind in MARKS else {word: i for i, word in enumerate(WORDS)}
    getattr(transformers, kind)(vocab=vocabulary, **settings).save_pretrained(tmp_path)
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tmp_path), Tokenizer.load(tmp_path)
    for text in ("A man rides", "  É bike\t``ä''  ", "", "men <mask>men [MASK]", "x unknown 中文"):
        assert ours.encode(text, special_tokens=True) == theirs(text)["input_ids"], text


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("folder", ["mbart", "mbart50", "gemma", "m2m_100", "siglip", "siglip cased"], indirect=True)
def test_ids_are_those_of_the_reference(folder: Path, tmp_path):
    theirs, ours = transformers.AutoTokenizer.from_pretrained(str(folder)), Tokenizer.load(folder)
    assert [ours.encode(text, special_tokens=True) for text in TEXTS] == [theirs(text)["input_ids"] for text in TEXTS]
    ours.save(tmp_path / "again")
    again = Tokenizer.load(tmp_path / "again")
    assert [again.encode(text, special_tokens=True) for text in TEXTS] == [
        ours.encode(text, special_tokens=True) for text in TEXTS
    ]


@pytest.mark.parametrize("folder", ["nllb", "xglm"], indirect=True)
def test_ids_are_those_of_sentencepiece_one_further(folder: Path):
    """transformers 5 loses the numbering of these two; version 4, as fairseq, counts the file's pieces from 1."""
    pieces, ours = sentencepiece.SentencePieceProcessor(str(folder / FILE)), Tokenizer.load(folder)
    for text in TEXTS:
        expected = [3 if number == 0 else number + 1 for number in pieces.encode(text)]
        assert ours.encode(text) == expected
    known = languages(ours)
    if known:  # The languages follow the pieces, and the mask comes last.
        assert ours.library.token_to_id("ace_Arab") == len(pieces) + 1
        assert ours.library.token_to_id("<mask>") == ours.vocab_size - 1 == len(pieces) + 1 + 202
        assert ours.encode("", special_tokens=True) == [ours.library.token_to_id("fra_Latn"), 2]
    else:
        assert ours.encode("", special_tokens=True) == [2]
        assert ours.library.token_to_id("<madeupword6>") == ours.vocab_size - 1


@pytest.mark.parametrize("folder", ["m2m_100"], indirect=True)
def test_a_numbering_that_lacks_a_piece_is_refused(folder: Path):
    path = folder / "vocab.json"
    ids = json.loads(path.read_text())
    last = max(ids, key=ids.__getitem__)
    path.write_text(json.dumps({name: i for name, i in ids.items() if name != last}))
    with pytest.raises(UserError, match=r"vocab\.json: expected an id for <unk> and every piece, got none for"):
        Tokenizer.load(folder)
    path.unlink()
    with pytest.raises(UserError, match=r"expected vocab\.json, which numbers the pieces, got no such file"):
        Tokenizer.load(folder)
