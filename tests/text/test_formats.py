"""Older formats, small ones made here: each against the class of the other library that it was written for."""

import base64
import contextlib
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from clearhead.errors import UserError
from clearhead.recipe.tokenizers import TokenizerConfig, Words
from clearhead.text.tokenizers import Tokenizer
from tests.sidecars.tokenizers import bases
from tests.text.test_tokenizers import KINDS

TEXTS = [
    "A man in an orange hat, starring at something (a dog?), in 1999.",
    "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt; die Männer: 30!",
    "  l'été, «où» — we're 日本語のテスト   ",
    "tab\tand\nline  two",
] * 3
ODD = [
    *TEXTS[:4],
    "",
    " ",
    "👍🏽 x",
    "e\u0301 A\u030a",
    "\u200b\x01a",
    "a </s> b",
    "x<s>y",
    "<mask> z <pad>",
    "[SEP] q",
    "a<|endoftext|>b",
]


@pytest.fixture(autouse=True)
def _quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def auto() -> Any:
    """The other library's AutoTokenizer."""
    return pytest.importorskip("transformers").AutoTokenizer


def write(folder: Path, files: dict[str, object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        raw = content if isinstance(content, bytes) else str(content).encode()
        (folder / name).write_bytes(json.dumps(content).encode() if isinstance(content, dict) else raw)
    return folder


def check(folder: Path, auto: Any, tmp_path: Path, *, pairs: bool = True) -> Tokenizer:
    """Equal to what AutoTokenizer makes of the folder, and of what is saved from it."""
    ours = Tokenizer.load(folder)
    ours.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").to_files() == ours.to_files()
    for place in (folder, tmp_path / "saved"):
        theirs = auto.from_pretrained(str(place))
        assert ours.encode_batch(ODD, special_tokens=True) == theirs(ODD)["input_ids"], place
        assert ours.encode_batch(ODD) == theirs(ODD, add_special_tokens=False)["input_ids"]
        ids = ours.encode_batch(TEXTS)
        assert ours.decode_batch(ids) == theirs.batch_decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        assert (ours.pad_id, ours.unk_id) == (theirs.pad_token_id, theirs.unk_token_id)
        if pairs:
            encoded = theirs("A man", "a dog", return_token_type_ids=True)
            assert ours.encode_pair("A man", "a dog") == (encoded["input_ids"], encoded["token_type_ids"])
    return ours


def byte_pairs(special: list[str], *, suffix: str = "") -> dict[str, object]:
    """vocab.json and merges.txt of a small model, the special tokens first."""
    library = tokenizers.Tokenizer(models.BPE(end_of_word_suffix=suffix))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    ending: dict[str, Any] = {"end_of_word_suffix": suffix} if suffix else {}
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        **ending,
    )
    library.train_from_iterator(TEXTS, trainer)
    model = json.loads(library.to_str())["model"]
    ids = model["vocab"]
    for character in pre_tokenizers.ByteLevel.alphabet():
        ids.setdefault(character + suffix, len(ids))
    merges = [" ".join(merge) for merge in model["merges"]]
    return {"vocab.json": ids, "merges.txt": "\n".join(["#version: 0.2", *merges, ""])}


END = "<|endoftext|>"


@pytest.mark.parametrize(
    ("base", "settings"),
    [
        ("bytes of two files", {}),
        ("bytes of two files", {"tokenizer_class": "Qwen2Tokenizer", "pad_token": END}),
        *(("marked of two files", {"add_prefix_space": prefix, "model_max_length": 77}) for prefix in (False, True)),
        *(("list", fields) for fields in ({}, {"do_lower_case": False}, {"strip_accents": False})),
        ("list", {"tokenize_chinese_chars": False}),
        ("denoiser", {}),
        ("shifted", {}),
    ],
)
def test_older_files(base: str, settings: dict[str, Any], auto: Any, tmp_path):
    files = bases()[base]
    files = files | {"tokenizer_config.json": files["tokenizer_config.json"] | settings}
    ours = check(write(tmp_path / "there", files), auto, tmp_path, pairs=base != "bytes of two files")
    saved = json.loads(ours.to_files()["tokenizer_config.json"])
    assert saved.items() >= {name: value for name, value in settings.items() if name == "model_max_length"}.items()
    if base not in ("denoiser", "shifted") and "tokenizer_class" not in settings:  # The vocabulary implies the class.
        plain = {name: content for name, content in files.items() if name != "tokenizer_config.json"}
        unnamed = Tokenizer.load(write(tmp_path / "unnamed", {**plain, "tokenizer_config.json": settings}))
        assert unnamed.encode_batch(ODD, special_tokens=True) == ours.encode_batch(ODD, special_tokens=True)


def test_two_texts_need_a_template():
    with pytest.raises(UserError, match="expected a template for two texts, got none; try"):
        Tokenizer.train(TEXTS, Words()).encode_pair("a", "b")


def test_tokens_that_were_added_to_a_list(tmp_path):
    more = {"added_tokens.json": {"[NEW]": 4}, "special_tokens_map.json": {"additional_special_tokens": ["[NEW]"]}}
    ours = Tokenizer.load(write(tmp_path, {"vocab.txt": "[UNK]\n[CLS]\n[SEP]\na\n", **more}))
    assert ours.encode("[NEW]") == [4] == [ours.vocab_size - 1]
    assert ours.to_files()["added_tokens.json"] == (tmp_path / "added_tokens.json").read_bytes()


def test_byte_pairs_of_ended_words(auto: Any, tmp_path):
    files = byte_pairs(["<|startoftext|>", END], suffix="</w>")
    files |= {"tokenizer_config.json": {"tokenizer_class": "CLIPTokenizer"}}
    folder = write(tmp_path / "there", files)
    ours = Tokenizer.load(folder)
    theirs = auto.from_pretrained(str(folder))
    assert ours.encode_batch(ODD, special_tokens=True) == theirs(ODD)["input_ids"]
    assert ours.decode(ours.encode("a man, 1999")) == theirs.decode(ours.encode("a man, 1999"))
    ours.save(tmp_path / "saved")
    assert auto.from_pretrained(str(tmp_path / "saved"))(ODD)["input_ids"] == ours.encode_batch(
        ODD, special_tokens=True
    )


def pieces_model(folder: Path, name: str, **options: object) -> bytes:
    sentencepiece = pytest.importorskip("sentencepiece")
    folder.mkdir(parents=True, exist_ok=True)
    given = {"vocab_size": 150, "hard_vocab_limit": False, "minloglevel": 2} | options
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 5), model_prefix=str(folder / "made"), **given
    )
    content = (folder / "made.model").read_bytes()
    (folder / "made.model").unlink()
    (folder / "made.vocab").unlink()
    (folder / name).write_bytes(content)
    return content


@pytest.mark.parametrize("settings", [{}, {"add_bos_token": False}, {"add_eos_token": True}, {"legacy": False}])
def test_merged_sentence_pieces(settings: dict[str, object], auto: Any, tmp_path):
    folder = tmp_path / "there"
    options = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    pieces_model(folder, "tokenizer.model", model_type="bpe", vocab_size=420, byte_fallback=True, **options)
    ours = Tokenizer.load(write(folder, {"tokenizer_config.json": settings}))
    bos, eos = settings.get("add_bos_token", True), settings.get("add_eos_token", False)
    assert ours.encode("", special_tokens=True) == [1] * bool(bos) + [2] * bool(eos)
    model = pytest.importorskip("sentencepiece").SentencePieceProcessor(str(folder / "tokenizer.model"))
    plain = [
        text for text in ODD if "s>" not in text and not (text.startswith(" ") and settings.get("legacy") is False)
    ]
    assert ours.encode_batch(plain) == model.encode(plain)
    assert ours.decode_batch(ours.encode_batch(plain)) == plain
    ours.save(tmp_path / "saved")
    assert auto.from_pretrained(str(tmp_path / "saved"))(ODD)["input_ids"] == ours.encode_batch(
        ODD, special_tokens=True
    )


@pytest.mark.parametrize("separate", [False, True])
def test_two_sides(separate: bool, auto: Any, tmp_path):
    """Ids by vocab.json, in another order than the models'; some pieces are missing from it."""
    folder = tmp_path / "there"
    pieces_model(folder, "source.spm", vocab_size=90)
    pieces_model(folder, "target.spm", vocab_size=130)
    from sentencepiece import SentencePieceProcessor

    models_of = [SentencePieceProcessor(str(folder / name)) for name in ("source.spm", "target.spm")]
    pieces = [[model.id_to_piece(i) for i in range(3, len(model))] for model in models_of]
    special = ["</s>", "<unk>", ">>fra<<"]
    lists = [
        special + listed[::-1][:-2] + ["<pad>"] for listed in (pieces if separate else [[*pieces[0], *pieces[1]]] * 2)
    ]
    ids = [{piece: number for number, piece in enumerate(dict.fromkeys(listed))} for listed in lists]
    files: dict[str, object] = {"vocab.json": ids[0]}
    if separate:
        files["target_vocab.json"] = ids[1]
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": separate,
        "source_lang": "eng",
        "target_lang": "fra",
    }
    write(folder, files | {"tokenizer_config.json": settings})
    ours = Tokenizer.load(folder)
    theirs = auto.from_pretrained(str(folder))
    texts = [*ODD, ">>fra<< A man", ">>none<< A man", "A >>fra<< man"]
    assert ours.encode_batch(texts, special_tokens=True) == theirs(texts)["input_ids"]
    assert ours.encode_batch(texts, special_tokens=True, target=True) == theirs(text_target=texts)["input_ids"]
    outputs = ours.encode_batch(texts, special_tokens=True, target=True)
    assert ours.decode_batch(outputs) == theirs.batch_decode(outputs, skip_special_tokens=True)
    assert (ours.vocab_size, ours.eos_id, ours.unk_id) == (len(ids[1]), 0, 1)
    assert ours.to_files() == {path.name: path.read_bytes() for path in folder.iterdir()}
    again = Tokenizer.from_files(ours.to_files())
    assert again.encode_batch(texts, target=True) == ours.encode_batch(texts, target=True)
    text = ">>fra<< A man, ☃"
    assert next(text[a:b] for a, b in ours.offsets(text)) == ">>fra<<"
    assert "☃" in ours.unknown(text)
    with pytest.raises(UserError, match="expected a template for two texts"):
        ours.encode_pair("a", "b")


@pytest.mark.parametrize("config", KINDS, ids=lambda config: config.kind)
def test_trained_here(config: TokenizerConfig, auto: Any, tmp_path):
    ours = Tokenizer.train(TEXTS, config)
    ours.save(tmp_path)
    theirs = auto.from_pretrained(str(tmp_path))
    assert ours.encode_batch(ODD) == theirs(ODD)["input_ids"]
    assert not ours.has_template
    assert ours.encode_batch(TEXTS, special_tokens=True) == ours.encode_batch(TEXTS)


def test_ranks_and_chat_template(auto: Any, tmp_path):
    ranks = [bytes([byte]) for byte in range(256)] + [b"th", b"the", b" the", b"12", b"123"]
    content = b"".join(base64.b64encode(piece) + b" %d\n" % rank for rank, piece in enumerate(ranks))
    template = "{{ messages }}\n"
    files: dict[str, object] = {"a.tiktoken": content, "chat_template.jinja": template}
    folder = write(tmp_path / "there", files | {"tokenizer_config.json": {"chat_template": "other"}})
    ours = Tokenizer.load(folder)
    assert ours.tokens(ours.encode(" the 1234")) == ["▁the", "▁", "123", "4"]
    assert ours.chat_template == template
    assert ours.to_files()["chat_template.jinja"].decode() == template
    (folder / "chat_template.jinja").unlink()
    assert Tokenizer.load(folder).chat_template == "other"
    write(folder, {"tokenizer_config.json": {"chat_template": [{"name": "default", "template": "d"}]}})
    assert Tokenizer.load(folder).chat_template == "d"
    write(folder, {"tokenizer_config.json": {}})
    assert Tokenizer.load(folder).chat_template is None
    ours.save(tmp_path / "saved")
    assert auto.from_pretrained(str(tmp_path / "saved"))(TEXTS)["input_ids"] == ours.encode_batch(TEXTS)


def test_where_there_is_none(tmp_path):
    assert Tokenizer.find(tmp_path / "none") is None
    assert Tokenizer.find(write(tmp_path, {"config.json": {}, "vocab.json": {"a": 0}})) is None
    with pytest.raises(UserError, match=r"expected tokenizer\.json, source\.spm.*, got no such file; try"):
        Tokenizer.load(tmp_path)
    assert Tokenizer.find(write(tmp_path, {"vocab.txt": "[UNK]\na\n"})) is not None


LINE = "a" * 10_000_000
PIECE = b"\n\x0b\n\x05<unk>\x18\x02"
HOSTILE: dict[str, tuple[dict[str, object], str]] = {
    "empty model": ({"tokenizer.model": b""}, "expected a SentencePiece model, got 0 pieces"),
    "garbage": ({"x.spm": b"\xff" * 64}, "expected a SentencePiece model, got a number of more than 10 bytes"),
    "long length": ({"x.spm": b"\x0a\xff\xff\xff\xff\x0f"}, "expected a SentencePiece model, got a field of"),
    "negative length": (
        {"x.spm": b"\x0a" + b"\xff" * 9 + b"\x01"},
        "expected a SentencePiece model, got a field of -1",
    ),
    "not a number": ({"x.spm": b"\x0a\x08\x0a\x01a\x15\x00\x00\xc0\x7f"}, "a score that is not finite"),
    "unknown kind": (
        {"x.spm": b"\x0a\x05\x0a\x01a\x18\x09"},
        "expected a SentencePiece model, got a piece of kind 9",
    ),
    "no unknown": ({"x.spm": b"\x0a\x03\x0a\x01a"}, "unk_id=0, which is no unknown piece"),
    "bad map": ({"x.spm": b"\x0a\x09\x0a\x05<unk>\x18\x02\x1a\x07\x12\x05\x04\x00\x00\x00\x00"}, "table of characters"),
    "twice": ({"vocab.txt": "[UNK]\na\nb\na\n"}, r"vocab\.txt:4: expected each piece once, got 'a' again after line 2"),
    "latin1": ({"vocab.txt": b"[UNK]\n\xe9\n"}, r"vocab\.txt:2: expected UTF-8, got the byte 0xE9"),
    "no [UNK]": ({"vocab.txt": "a\nb\n"}, r"expected \[UNK\] among the pieces"),
    "one line": ({"vocab.txt": LINE}, r"vocab\.txt:1: expected a piece of at most 1024 bytes, got 10000000"),
    "one model": ({"tokenizer.model": LINE}, "expected a SentencePiece model"),
    "one rank": ({"a.tiktoken": LINE}, r"a\.tiktoken:1: expected a piece in base64 and its rank"),
    "one merge": ({"vocab.json": {"a": 0}, "merges.txt": LINE}, r"merges\.txt:1: expected a piece of at most"),
    "one json": ({"tokenizer.json": LINE}, r"tokenizer\.json: expected a tokenizer, got "),
    "merge of nothing": (
        {"vocab.json": {"a": 0}, "merges.txt": "a b\n"},
        r"merges\.txt:1: expected pieces of vocab\.json, got 'b'",
    ),
    "three pieces": (
        {"vocab.json": {"a": 0}, "merges.txt": "a a a\n"},
        r"merges\.txt:1: expected two pieces, got 'a a a'",
    ),
    "same id": ({"vocab.json": {"a": 0, "b": 0}, "merges.txt": ""}, "got the same id twice"),
    "large id": ({"vocab.json": {"a": 1 << 40}, "merges.txt": ""}, "expected an id from 0 to"),
    "deep": ({"tokenizer.json": "{}", "tokenizer_config.json": "[" * 100_000}, "expected at most 100 levels"),
    "added": ({"vocab.txt": "[UNK]\n", "added_tokens.json": {"a": "b"}}, "expected an id, got b"),
    "scores": ({"tok9.bin": b"\0\0\0\0\0\0\0\0\xff\xff\xff\x7fa"}, "expected a list of scored pieces, got piece 0 of"),
    "half": ({"source.spm": b"", "vocab.json": {"a": 0}}, r"expected target\.spm, got no such file"),
    "two": ({"a.spm": b"", "b.spm": b""}, r"expected one tokenizer, got a\.spm and b\.spm"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_one_line(name: str, tmp_path):
    files, message = HOSTILE[name]
    with pytest.raises(UserError, match=message) as error:
        Tokenizer.load(write(tmp_path, files))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


def test_a_model_cut_anywhere_is_one_line(tmp_path):
    content = pieces_model(tmp_path, "spiece.model")
    for size in [*range(0, len(content), max(1, len(content) // 300)), len(content) - 1]:
        (tmp_path / "spiece.model").write_bytes(content[:size])
        with contextlib.suppress(UserError):  # cut between two fields, it is a model still
            Tokenizer.load(tmp_path).encode_batch(ODD)


def test_marks_and_ends_at_once_are_one_line(tmp_path):
    ours = Tokenizer.load(write(tmp_path, {"vocab.txt": "[UNK]\n[CLS]\n[SEP]\na\n"}))
    assert ours.encode("a", special_tokens=True) == ours.encode("a", bos=True, eos=True) == [1, 3, 2]
    assert ours.encode_pair("a", "a a") == ([1, 3, 2, 3, 3, 2], [0, 0, 0, 1, 1, 1])
    with pytest.raises(UserError, match="expected special_tokens, or bos and eos, got both; try"):
        ours.encode("a", special_tokens=True, eos=True)
