"""The tokenizer in the metadata of a GGUF file. Imports no torch.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
`checkpoints/families/gguf_tokenizers.toml` explains the names in the metadata.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from clearhead.config import Config
from clearhead.errors import UserError
from clearhead.text.formats import GENERIC, OpenedTokenizer
from clearhead.text.formats.byte_pairs import (
    CASED,
    PATTERNS,
    SINGLE_DIGITS,
    THREE_DIGITS,
    WORDS_2019,
    pattern_of,
    splitter,
)
from clearhead.text.formats.checked import AGAIN, guarded, read_table
from clearhead.text.formats.sentence_pieces import open_model
from clearhead.text.formats.special import CLEANS, content_of, name_customary, set_end_template
from clearhead.text.formats.wire import PieceKind, from_rows

PREFIX = "tokenizer.ggml."
WHOLE = "tokenizer.huggingface.json"
"""The key of a whole tokenizer.json."""
TEMPLATE = "tokenizer.chat_template"
DEFAULT = "default"
"""The name that stands for any way to split."""
ROLES = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
    "sep_token": "seperator_token_id",
    "cls_token": "cls_token_id",
    "mask_token": "mask_token_id",
}
"""Our names of special tokens -> the format's, spelt as there."""
IDS = {
    "unk_id": ("unknown_token_id", 0),
    "bos_id": ("bos_token_id", 1),
    "eos_id": ("eos_token_id", 2),
    "pad_id": ("padding_token_id", -1),
}
"""Special tokens of a model with scores: the format's name, and the id unless the metadata give another."""
CASED_SINGLE_DIGITS = CASED.replace(r"\p{N}{1,3}", r"\p{N}").replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "")
SPLITS = {
    "words_2019": WORDS_2019,
    "single_digits": SINGLE_DIGITS,
    "three_digits": THREE_DIGITS,
    "cased": CASED,
    "cased_single_digits": CASED_SINGLE_DIGITS,
}


class Split(Config):
    """One way to split a text. `checkpoints/families/gguf_tokenizers.toml` explains its fields."""

    names: tuple[str, ...]
    words: Literal["words_2019", "single_digits", "three_digits", "cased", "cased_single_digits"]
    digits: bool = False
    composed: bool = False
    whole: bool = False
    begins: bool = False


class Table(Config):
    """The whole file."""

    models: dict[str, Literal["scores", "merges", ""]]
    splits: tuple[Split, ...]


@cache
def table() -> Table:
    """The content of `checkpoints/families/gguf_tokenizers.toml`."""
    return read_table("gguf_tokenizers.toml", Table)


def open_metadata(metadata: Mapping[str, Any], where: str) -> OpenedTokenizer | None:
    """The tokenizer of a file; None if it has none. Raises UserError for one whose rules are not known here."""
    name = metadata.get(f"{PREFIX}model", "none")
    if name not in table().models:
        known = ", ".join(table().models)
        raise UserError(f"{where}:{PREFIX}model: expected one of {known}, got {str(name)[:40]!r}; try another file")
    kind = table().models[name]
    if not kind and WHOLE not in metadata:
        return None
    message = f"{where}: expected a tokenizer"
    return guarded(lambda: _opened(metadata, kind, where), message, remedy="try downloading it again")


def _opened(metadata: Mapping[str, Any], kind: str, where: str) -> OpenedTokenizer:
    settings: dict[str, object] = {"tokenizer_class": GENERIC, CLEANS: False}
    if isinstance(chat := metadata.get(TEMPLATE), str):
        settings["chat_template"] = chat
    if WHOLE in metadata:
        library = tokenizers.Tokenizer.from_str(str(metadata[WHOLE]))
        settings |= _named(metadata, library, where)
        name_customary(library, settings)
        return OpenedTokenizer(library, settings)
    for end in ("bos", "eos"):
        if isinstance(asked := metadata.get(f"{PREFIX}add_{end}_token"), bool):
            settings[f"add_{end}_token"] = asked
    library = _scored(metadata, settings, where) if kind == "scores" else _merged(metadata, settings, where)
    return OpenedTokenizer(library, settings)


def _named(metadata: Mapping[str, Any], library: tokenizers.Tokenizer, where: str) -> dict[str, object]:
    """The special tokens that the metadata give a role."""
    roles: dict[str, object] = {}
    for role, key in ROLES.items():
        if (number := metadata.get(f"{PREFIX}{key}")) is None:
            continue
        token = library.id_to_token(number) if isinstance(number, int) and number >= 0 else None
        if token is None:
            raise UserError(f"{where}:{PREFIX}{key}: expected the id of a token, got {str(number)[:40]}; {AGAIN}")
        roles[role] = token
    return roles


def _list(metadata: Mapping[str, Any], key: str, kind: type, where: str, *, n: int | None = None) -> list[Any]:
    """A list of the metadata. Raises UserError unless it has `n` values of this kind."""
    values = metadata.get(f"{PREFIX}{key}")
    if not isinstance(values, list) or not values or not all(type(value) is kind for value in values):
        got = "none" if values is None else "another kind of value"
        raise UserError(f"{where}:{PREFIX}{key}: expected a list of {kind.__name__}, got {got}; {AGAIN}")
    if n is not None and len(values) != n:
        raise UserError(f"{where}:{PREFIX}{key}: expected {n} values, one for each token, got {len(values)}; {AGAIN}")
    return values


# --- pieces with scores --------------------------------------------------------------------------------------------


def _scored(metadata: Mapping[str, Any], settings: dict[str, object], where: str) -> tokenizers.Tokenizer:
    """SentencePiece's segmentation by merges. A text begins with the begin token unless the metadata say otherwise."""
    tokens = _list(metadata, "tokens", str, where)
    scores = _list(metadata, "scores", float, where, n=len(tokens))
    kinds = _list(metadata, "token_type", int, where, n=len(tokens))
    ids = {name: metadata.get(f"{PREFIX}{key}", number) for name, (key, number) in IDS.items()}
    model = from_rows(
        zip(tokens, scores, kinds, strict=True),
        f"{where}:{PREFIX}tokens",
        ids=ids,
        add_dummy_prefix=metadata.get(f"{PREFIX}add_space_prefix", True) is True,
        remove_extra_whitespaces=metadata.get(f"{PREFIX}remove_extra_whitespaces", False) is True,
    )
    settings.setdefault("add_bos_token", True)
    settings.setdefault("add_eos_token", False)
    library = open_model(model, settings, f"{where}/{PREFIX}")
    settings |= _named(metadata, library, where)
    return library


# --- merged bytes --------------------------------------------------------------------------------------------------


def _merged(metadata: Mapping[str, Any], settings: dict[str, object], where: str) -> tokenizers.Tokenizer:
    """Bytes merged within words. How a text is split into words follows from tokenizer.ggml.pre."""
    tokens = _list(metadata, "tokens", str, where)
    kinds = _list(metadata, "token_type", int, where, n=len(tokens))
    ids = {token: number for number, token in enumerate(tokens)}
    if len(ids) < len(tokens):
        raise UserError(f"{where}:{PREFIX}tokens: expected each token once, got one twice; {AGAIN}")
    merges = [_pair(line, ids, where) for line in _list(metadata, "merges", str, where)]
    split = _split(metadata, merges, where)
    library = build(ids, merges, split)
    special = (PieceKind.CONTROL, PieceKind.UNKNOWN)
    added = [
        AddedToken(token, normalized=False, special=kind in special)
        for token, kind in zip(tokens, kinds, strict=True)
        if kind in (*special, PieceKind.USER_DEFINED)
    ]
    library.add_tokens(added)
    settings |= _named(metadata, library, where)
    ends = {"bos": split.begins, "eos": False}
    names = [content_of(settings.get(f"{end}_token")) for end in ends]
    asked = [settings.get(f"add_{end}_token", default) for end, default in ends.items()]
    set_end_template(library, *(name if wanted else None for name, wanted in zip(names, asked, strict=True)))
    return library


def build(ids: Mapping[str, int], merges: list[tuple[str, str]], split: Split) -> tokenizers.Tokenizer:
    """The segmentation without special tokens."""
    library = tokenizers.Tokenizer(models.BPE(dict(ids), merges, ignore_merges=split.whole))
    if split.composed:
        library.normalizer = normalizers.NFC()
    library.pre_tokenizer = words(split)
    library.decoder = decoders.ByteLevel()
    return library


def words(split: Split) -> pre_tokenizers.PreTokenizer:
    """The part that splits a text into words of bytes."""
    if split.words != "words_2019":
        return splitter(SPLITS[split.words], prefix=False)
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), plain]) if split.digits else plain


def _pair(line: str, ids: Mapping[str, int], where: str) -> tuple[str, str]:
    left, space, right = line.partition(" ")
    if not space or left not in ids or right not in ids or left + right not in ids:
        raise UserError(f"{where}:{PREFIX}merges: expected two tokens that spell a third, got {line[:40]!r}; {AGAIN}")
    return left, right


def _split(metadata: Mapping[str, Any], merges: list[tuple[str, str]], where: str) -> Split:
    """The way to split that the metadata name, otherwise the one that leaves the merged pieces whole."""
    name = metadata.get(f"{PREFIX}pre", DEFAULT)
    for split in table().splits:
        if name in split.names:
            return split
    if name != DEFAULT:
        known = ", ".join(split.names[0] for split in table().splits)
        raise UserError(
            f"{where}:{PREFIX}pre: expected a way to split texts that is known here ({known}), got {str(name)[:40]!r};"
            " try the model in safetensors, with its tokenizer.json"
        )
    pattern = pattern_of([left + right for left, right in merges], where, among=PATTERNS)
    words = next(name for name, known in SPLITS.items() if known == pattern)
    return Split.model_validate({"names": (), "words": words})
