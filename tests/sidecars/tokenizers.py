"""Folders made by seeded mutation of a tokenizer's files: each opens as the reference library opens it, or is refused.

`cases(n, seed)` draws them, `judge(case)` says in a line what is wrong with one, None where nothing is.
"""

import functools
import json
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from clearhead.errors import UserError
from clearhead.text.tokenizers import Tokenizer

Files = dict[str, Any]
"""What a folder holds: bytes, text, or an object that becomes JSON."""

TEXTS = [
    "A man in an orange hat, starring at something (a dog?), in 1999.",
    "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt; die Männer: 30!",
    "  l'été, «où» — we're 日本語のテスト   ",
    "THE QUICK brown Fox doesn't JUMP over the lazy dogs. Où est-il?",
]
LINES = [
    *TEXTS,
    *("", " ", " a man", "  A  man ", "中文 test 日本語", "Étude été ÉTÉ", "tab\tand\nline", "x , y . z ! we 're"),
    *(f"a {name} b{name}c" for name in ("<s>", "</s>", "<mask>", "[MASK]", "[SEP]", "<pad>", "<|endoftext|>", "<new>")),
    *("<unk_2> <mask_1> <mask_2>", "<extra_id_0> a<extra_id_7>", "Plain WORD plain", "a  <mask>  b", "<s>NOTUSED x"),
]
FLAGS = (
    *("do_lower_case", "add_prefix_space", "strip_accents", "tokenize_chinese_chars", "add_bos_token", "add_eos_token"),
    *("clean_up_tokenization_spaces", "split_special_tokens", "legacy", "trim_offsets"),
)
ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
CLASSES = (
    *(
        "BertTokenizer",
        "BertTokenizerFast",
        "RobertaTokenizer",
        "BartTokenizerFast",
        "GPT2Tokenizer",
        "T5TokenizerFast",
    ),
    *("Qwen2Tokenizer", "LlamaTokenizer", "LlamaTokenizerFast", "CamembertTokenizer", "XLMRobertaTokenizerFast"),
    *("PegasusTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend", "AlbertTokenizer", "NoSuchTokenizer"),
)
MODEL_TYPES = ("bert", "roberta", "gpt2", "qwen2", "llama", "mistral", "camembert", "xlm-roberta", "t5", "pegasus")


@dataclass(frozen=True)
class Case:
    """A folder, and what made it."""

    name: str
    files: Files


# --- folders to begin with ---


def _library(model: Any, trainer: Any, before: Any) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = before
    library.train_from_iterator(TEXTS * 3, trainer)
    return library


def _words() -> tokenizers.Tokenizer:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=260, special_tokens=special, show_progress=False)
    library = _library(models.WordPiece(unk_token="[UNK]"), trainer, pre_tokenizers.BertPreTokenizer())
    library.normalizer = normalizers.BertNormalizer()
    library.decoder = decoders.WordPiece()
    library.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return library


def _bytes(special: list[str]) -> tokenizers.Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    library = _library(models.BPE(), trainer, pre_tokenizers.ByteLevel(add_prefix_space=False))
    library.decoder = decoders.ByteLevel()
    return library


def _merged() -> tokenizers.Tokenizer:
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    before = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    library = _library(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True), trainer, before)
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    library.pre_tokenizer = None
    library.decoder = decoders.Metaspace()
    library.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return library


def _older(library: tokenizers.Tokenizer) -> Files:
    """vocab.json and merges.txt of a model of merges."""
    model = json.loads(library.to_str())["model"]
    merges = [" ".join(merge) for merge in model["merges"]]
    return {"vocab.json": model["vocab"], "merges.txt": "\n".join(["#version: 0.2", *merges, ""])}


def _pieces(name: str, **options: object) -> Files:
    with tempfile.TemporaryDirectory() as folder:
        given: dict[str, Any] = {"vocab_size": 140, "hard_vocab_limit": False, "minloglevel": 2} | options
        prefix = f"{folder}/made"
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXTS * 5), model_prefix=prefix, **given)
        return {name: Path(f"{prefix}.model").read_bytes()}


def _unigram() -> tokenizers.Tokenizer:
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=150, special_tokens=special, unk_token="<unk>", show_progress=False)
    library = _library(models.Unigram(), trainer, pre_tokenizers.Metaspace())
    library.decoder = decoders.Metaspace()
    return library


@functools.cache
def bases() -> dict[str, Files]:
    """A folder of each kind, by name."""
    words, plain, marked = _words(), _bytes(["<|endoftext|>"]), _bytes(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    pieces = sorted(words.get_vocab(), key=words.get_vocab().__getitem__)
    merged = {"model_type": "bpe", "vocab_size": 420, "byte_fallback": True, "remove_extra_whitespaces": False}
    ends = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    denoiser, shifted = _pieces("spiece.model", **ends), _pieces("sentencepiece.bpe.model")

    def of(library: tokenizers.Tokenizer, kind: str, **settings: object) -> Files:
        return {"tokenizer.json": library.to_str(), "tokenizer_config.json": {"tokenizer_class": kind, **settings}}

    def older(files: Files, kind: str) -> Files:
        return {**files, "tokenizer_config.json": {"tokenizer_class": kind}}

    return {
        "words": of(words, "BertTokenizer", do_lower_case=True),
        "list": older({"vocab.txt": "\n".join([*pieces, ""])}, "BertTokenizer"),
        "bytes": of(plain, "GPT2Tokenizer"),
        "bytes of two files": older(_older(plain), "GPT2Tokenizer"),
        "digits": of(plain, "Qwen2Tokenizer"),
        "marked": of(marked, "RobertaTokenizer"),
        "marked of two files": older(_older(marked), "BartTokenizer"),
        "merged": of(_merged(), "LlamaTokenizer"),
        "merged pieces": older(_pieces("tokenizer.model", **merged), "LlamaTokenizer"),
        "generic": of(marked, "PreTrainedTokenizerFast", pad_token="<pad>", eos_token="</s>"),
        "unigram": of(_unigram(), "XLMRobertaTokenizer"),
        "shifted": older(shifted, "XLMRobertaTokenizer"),
        "shifted by four": older(shifted, "CamembertTokenizer"),
        "denoiser": older(denoiser, "T5Tokenizer"),
        "offset": older(_pieces("spiece.model", pad_id=0, eos_id=1, unk_id=2, bos_id=-1), "PegasusTokenizer"),
    }


@functools.cache
def later_bases() -> dict[str, Files]:
    """A folder of each kind that came later, by name."""
    plain, roles = _bytes(["<|endoftext|>", "<|padding|>"]), ["<PAD>", "<UNK>", "<CLS>", "<SEP>", "<MASK_TOKEN>"]
    turns = _bytes([*roles, "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"])
    marked = processors.TemplateProcessing(single="<BOS_TOKEN> $A", special_tokens=[("<BOS_TOKEN>", 5)])
    turns.post_processor = marked
    merged = _merged()
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<unk>"}

    def of(library: tokenizers.Tokenizer, kind: str, **settings: object) -> Files:
        return {"tokenizer.json": library.to_str(), "tokenizer_config.json": {"tokenizer_class": kind, **settings}}

    return {
        "composed": of(plain, "GPTNeoXTokenizer"),
        "composed with ends": of(plain, "GPTNeoXTokenizer", add_bos_token=True, add_eos_token=True),
        "code": of(plain, "CodeGenTokenizer"),
        "turns": of(turns, "CohereTokenizer"),
        "unsplit": of(merged, "GemmaTokenizer", mask_token="<unk>", **named),
    }


# --- mutations ---

Mutation = Callable[[Files, random.Random], str]


def _config(files: Files) -> dict[str, Any]:
    return files.setdefault("tokenizer_config.json", {})


def _flag(files: Files, rng: random.Random) -> str:
    name, value = rng.choice(FLAGS), rng.choice([True, True, False, False, None])
    _config(files)[name] = value
    return f"{name}={value}"


def _class(files: Files, rng: random.Random) -> str:
    _config(files)["tokenizer_class"] = (name := rng.choice(CLASSES))
    return name


def _of_model(files: Files, rng: random.Random) -> str:
    """The class left to the type of the model, in part or in whole."""
    files["config.json"] = {"model_type": (kind := rng.choice(MODEL_TYPES))}
    if rng.random() < 0.6:
        _config(files).pop("tokenizer_class", None)
    return f"model_type={kind}"


def _role(files: Files, rng: random.Random) -> str:
    role, name = rng.choice(ROLES), rng.choice(["<new>", "hat", "<s>", "[MASK]", "<mask>", None])
    place = rng.choice(["tokenizer_config.json", "special_tokens_map.json"])
    typed = {"content": name, "lstrip": rng.random() < 0.5, "rstrip": False, "normalized": rng.random() < 0.3}
    typed |= {"single_word": rng.random() < 0.3}
    if place == "tokenizer_config.json":
        typed["__type"] = "AddedToken"
    files.setdefault(place, {})[role] = typed if name and rng.random() < 0.4 else name
    return f"{place}: {role}={name}"


def _added(files: Files, rng: random.Random) -> str:
    """A token added by id: the next one, or one that is there."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), files)
        size = Tokenizer.load(Path(folder)).vocab_size
    token = {"content": "<new>", "lstrip": rng.random() < 0.5, "rstrip": rng.random() < 0.3, "single_word": False}
    token |= {"normalized": rng.random() < 0.5, "special": rng.random() < 0.5}
    if rng.random() < 0.5:
        _config(files)["added_tokens_decoder"] = {str(size): token}
        return "added_tokens_decoder"
    files["added_tokens.json"] = {"<new>": size}
    return "added_tokens.json"


def _extra(files: Files, rng: random.Random) -> str:
    key = rng.choice(["additional_special_tokens", "extra_special_tokens"])
    place = rng.choice(["tokenizer_config.json", "special_tokens_map.json"])
    files.setdefault(place, {})[key] = (names := rng.choice([["<new>"], ["man"], [], ["<new>", "<mask>"]]))
    return f"{place}: {key}={names}"


def _harmless(files: Files, rng: random.Random) -> str:
    name, value = rng.choice([("model_max_length", 7), ("padding_side", "left"), ("truncation_side", "left")])
    _config(files)[name] = value
    return f"{name}={value}"


def _numbers(files: Files, rng: random.Random) -> str:
    name, value = rng.choice([("extra_ids", 10), ("offset", 5), ("mask_token_sent", None), ("mask_token_sent", "<m>")])
    _config(files)[name] = value
    return f"{name}={value}"


def _pipeline(files: Files, rng: random.Random) -> str:
    """A part of tokenizer.json that a class may or may not build anew."""
    if "tokenizer.json" not in files:
        return _flag(files, rng)
    parts = json.loads(files["tokenizer.json"])
    name = rng.choice(["normalizer", "post_processor", "decoder", "pre_tokenizer"])
    parts[name] = {"type": "Lowercase"} if name == "normalizer" and rng.random() < 0.6 else None
    files["tokenizer.json"] = json.dumps(parts)
    return f"tokenizer.json: {name}"


MUTATIONS: tuple[Mutation, ...] = (
    *(_flag, _flag, _flag, _class, _of_model, _role, _role, _added, _extra, _harmless, _numbers, _pipeline),
)


def cases(n: int, seed: int) -> Iterator[Case]:
    """`n` folders, each with one to three mutations; the same ones for the same seed."""
    for number in range(n):
        rng = random.Random(seed * 1_000_003 + number)
        name = list(bases())[number % len(bases())]
        files = {key: dict(value) if isinstance(value, dict) else value for key, value in bases()[name].items()}
        done: list[str] = []
        for _ in range(rng.choice([1, 1, 2, 3])):
            try:
                done.append(rng.choice(MUTATIONS)(files, rng))
            except UserError:
                continue  # What is there already is refused.
        yield Case(f"{name}: {', '.join(done)}", files)


# --- the judgement ---


def write(folder: Path, files: Files) -> Path:
    """The folder on the disk."""
    for name, content in files.items():
        raw = content if isinstance(content, bytes) else str(content).encode()
        (folder / name).write_bytes(json.dumps(content).encode() if isinstance(content, dict) else raw)
    return folder


def judge(case: Case) -> str | None:
    """What is wrong with our reading of a folder, in a line; None where nothing is."""
    return verdict(case)[1]


def verdict(case: Case) -> tuple[str, str | None]:
    """ "same", "refused", or "alone" where the reference opens nothing; and what is wrong."""
    with tempfile.TemporaryDirectory() as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = write(Path(temporary), case.files)
        try:
            ours = Tokenizer.load(folder)
        except UserError as error:
            named = any(name in str(error) for name in case.files)
            return "refused", None if named and "\n" not in str(error) else f"{case.name}: no file named: {error}"
        try:
            theirs = _reference(folder)
        except Exception:  # whatever that library makes of a folder it does not open
            return "alone", None
        return "same", _difference(case, ours, theirs)


def _reference(folder: Path) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    found: Any = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    found(LINES)
    return found


def _difference(case: Case, ours: Tokenizer, theirs: Any) -> str | None:
    for marks in (True, False):
        expected = theirs(LINES, add_special_tokens=marks)["input_ids"]
        for text, here, there in zip(LINES, ours.encode_batch(LINES, special_tokens=marks), expected, strict=True):
            if here != there:
                return f"{case.name}: {text!r} (marks={marks}): expected {there}, got {here}"
    ids = theirs(LINES, add_special_tokens=False)["input_ids"]
    for here, there in zip(ours.decode_batch(ids), theirs.batch_decode(ids, skip_special_tokens=True), strict=True):
        if here != there:
            return f"{case.name}: decoded: expected {there!r}, got {here!r}"
    return None
