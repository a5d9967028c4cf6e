"""The tokenizer in the metadata of a GGUF file, and the metadata of a tokenizer. Imports no torch.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
`checkpoints/families/gguf_tokenizers.toml` explains the names in the metadata.
"""

from collections.abc import Mapping
from functools import cache
from itertools import islice
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
from clearhead.text.formats.checked import AGAIN, guarded, json_object, read_table
from clearhead.text.formats.sentence_pieces import open_model
from clearhead.text.formats.special import CLEANS, content_of, name_customary, set_end_template
from clearhead.text.formats.wire import PieceKind, from_rows
from clearhead.text.merges import pair_of
from clearhead.text.schemes import SPACE

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


NO_TOKENIZER = "no_vocab"
SAMPLES = (
    "The first man's 3 dogs didn't run 1,234.5 km; WE'LL see: https://example.org/a_b?c=d&e (x**2 + y_3 == 0)!\n",
    "  two  spaces,\ttabs\r\n\n   and lines  \n",
    "Été à Zürich – naïve café, smørrebrød, œuvre; cafe\u0301",
    "Привет, мир! 你好，世界。 こんにちは 한국어 עברית العربية हिन्दी ไทย 😀👩‍👩‍👧 ½ ⁴ Ⅳ ﬁ",
    "def f(x):\n    return [i for i in range(10_000) if i % 2 == 0]  # 日本\n",
    "",
    " ",
    "a",
)
"""Texts that tokenizers split in different ways."""
N_PIECES = 4000
"""The pieces of the vocabulary that are joined to further texts."""


def to_metadata(library: tokenizers.Tokenizer, settings: Mapping[str, object], *, n_rows: int) -> dict[str, Any]:
    """The metadata of a tokenizer for a table of `n_rows`.

    They hold the whole tokenizer.json too if the format has no rules that split texts like this one: programs that do
    not read it then split texts otherwise, or not at all.
    """
    metadata: dict[str, Any] = {
        f"{PREFIX}{key}": number
        for role, key in ROLES.items()
        if (name := content_of(settings.get(role))) and (number := library.token_to_id(name)) is not None
    }
    marked = library.encode("a", add_special_tokens=True).ids
    for end, place in (("bos", 0), ("eos", -1)):
        if marked and (number := metadata.get(f"{PREFIX}{end}_token_id")) is not None:
            metadata[f"{PREFIX}add_{end}_token"] = marked[place] == number
    if isinstance(chat := settings.get("chat_template"), str):
        metadata[TEMPLATE] = chat
    tables = _tables(library, n_rows)
    if tables is not None and _agrees(library, metadata | tables):
        return metadata | tables
    return metadata | (tables or {f"{PREFIX}model": NO_TOKENIZER}) | {WHOLE: library.to_str()}


def needs_whole(metadata: Mapping[str, Any]) -> bool:
    """True if only the whole tokenizer.json in these metadata splits texts like the tokenizer."""
    return WHOLE in metadata


def _tables(library: tokenizers.Tokenizer, n_rows: int) -> dict[str, Any] | None:
    """The tokens with their kinds, and the merges or scores; None for a tokenizer of another kind."""
    parts = json_object(library.to_str().encode(), "tokenizer.json")
    model: Any = parts["model"]
    if model.get("type") != "BPE":
        return None
    names = library.get_vocab(with_added_tokens=True)
    by_id = {number: name for name, number in names.items()}
    tokens = [by_id.get(i, f"[PAD{i}]") for i in range(max(n_rows, max(by_id, default=-1) + 1))]
    added = library.get_added_tokens_decoder()
    kinds = [int(_kind(i, token, i in by_id, added, model)) for i, token in enumerate(tokens)]
    tables = {f"{PREFIX}tokens": tokens, f"{PREFIX}token_type": kinds}
    pairs = [pair_of(merge) for merge in model["merges"]]
    split = next((known for known in table().splits if _splits_so(parts, known)), None)
    if split is not None:
        merges = [" ".join(pair) for pair in pairs]
        own = {"model": _model("merges"), "pre": split.names[0], "merges": merges}
        return tables | {f"{PREFIX}{key}": value for key, value in own.items()}
    if not model.get("byte_fallback"):
        return None
    ranks: dict[str, int] = {}
    for rank, pair in enumerate(pairs):
        ranks.setdefault("".join(pair), rank)
    scores = [-float(ranks.get(token, len(pairs))) for token in tokens]
    first = library.encode("a", add_special_tokens=False).tokens[:1]
    prefix = bool(first) and first[0].startswith(SPACE)
    own = {"model": _model("scores"), "scores": scores, "add_space_prefix": prefix}
    return tables | {f"{PREFIX}{key}": value for key, value in own.items()}


def _model(kind: str) -> str:
    return next(name for name, one in table().models.items() if one == kind)


def _kind(number: int, token: str, there: bool, added: Mapping[int, AddedToken], model: Mapping[str, Any]) -> PieceKind:
    if not there:
        return PieceKind.UNUSED
    if model.get("unk_token") == token:
        return PieceKind.UNKNOWN
    if number in added:
        return PieceKind.CONTROL if added[number].special else PieceKind.USER_DEFINED
    is_byte = model.get("byte_fallback") and len(token) == 6 and token.startswith("<0x")
    return PieceKind.BYTE if is_byte else PieceKind.NORMAL


def _splits_so(parts: Mapping[str, Any], split: Split) -> bool:
    """True if a tokenizer.json splits texts in this way."""
    built = json_object(build({}, [], split).to_str().encode(), "tokenizer.json")
    ours, theirs = (_steps(one) for one in (parts, built))
    return ours == theirs


def _steps(parts: Mapping[str, Any]) -> tuple[Any, ...]:
    """The normalizer and the splitter of a tokenizer.json, and whether words that are pieces stay whole."""
    return _plain(parts.get("normalizer")), _plain(parts["pre_tokenizer"]), bool(parts["model"].get("ignore_merges"))


def _plain(step: Any) -> Any:
    """A step without what changes no token; a sequence of one step is that step."""
    if not isinstance(step, dict):
        return step
    inner = next((step[name] for name in ("normalizers", "pretokenizers") if name in step), None)
    if inner is not None:
        return _plain(inner[0]) if len(inner) == 1 else [_plain(one) for one in inner]
    return {name: value for name, value in step.items() if name != "trim_offsets"}


def _agrees(library: tokenizers.Tokenizer, metadata: Mapping[str, Any]) -> bool:
    """True if the tokenizer that the metadata describe splits texts like this one."""
    opened = open_metadata(metadata, "gguf")
    assert opened is not None
    ids = islice(library.get_vocab(with_added_tokens=False).values(), N_PIECES)
    pieces = [library.decode([number], skip_special_tokens=False) for number in ids]
    texts = [*SAMPLES, *("".join(pieces[i : i + 8]) for i in range(0, len(pieces), 8))]
    texts += [" ".join(pieces[i : i + 8]) for i in range(0, len(pieces), 8)]
    ours, theirs = (
        [one.ids for one in each.encode_batch(texts, add_special_tokens=True)] for each in (library, opened.library)
    )
    return ours == theirs
