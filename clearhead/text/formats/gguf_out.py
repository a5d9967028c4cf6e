"""The metadata of a GGUF file for a tokenizer: the inverse of `gguf.py`. Imports no torch."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

import tokenizers
from tokenizers import AddedToken

from clearhead.text.formats.checked import json_object
from clearhead.text.formats.gguf import PREFIX, ROLES, TEMPLATE, WHOLE, Split, build, open_metadata, table
from clearhead.text.formats.special import content_of
from clearhead.text.formats.wire import PieceKind
from clearhead.text.schemes import SPACE

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
    found: dict[str, Any] = {
        f"{PREFIX}{key}": number
        for role, key in ROLES.items()
        if (name := content_of(settings.get(role))) and (number := library.token_to_id(name)) is not None
    }
    marked = library.encode("a", add_special_tokens=True).ids
    for end, place in (("bos", 0), ("eos", -1)):
        if marked and (number := found.get(f"{PREFIX}{end}_token_id")) is not None:
            found[f"{PREFIX}add_{end}_token"] = marked[place] == number
    if isinstance(chat := settings.get("chat_template"), str):
        found[TEMPLATE] = chat
    made = _tables(library, n_rows)
    if made is not None and _agrees(library, found | made):
        return found | made
    return found | (made or {f"{PREFIX}model": NO_TOKENIZER}) | {WHOLE: library.to_str()}


def needs_whole(metadata: Mapping[str, Any]) -> bool:
    """Whether only the whole tokenizer.json in these metadata splits texts like the tokenizer."""
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
    found = {f"{PREFIX}tokens": tokens, f"{PREFIX}token_type": kinds}
    pairs = [tuple(pair.split(" ", 1)) if isinstance(pair, str) else tuple(pair) for pair in model["merges"]]
    split = next((one for one in table().splits if _splits_so(parts, one)), None)
    if split is not None:
        merges = [" ".join(pair) for pair in pairs]
        return found | {_key("model"): _model("merges"), _key("pre"): split.names[0], _key("merges"): merges}
    if not model.get("byte_fallback"):
        return None
    ranks: dict[str, int] = {}
    for rank, pair in enumerate(pairs):
        ranks.setdefault("".join(pair), rank)
    scores = [-float(ranks.get(token, len(pairs))) for token in tokens]
    first = library.encode("a", add_special_tokens=False).tokens[:1]
    prefix = bool(first) and first[0].startswith(SPACE)
    return found | {_key("model"): _model("scores"), _key("scores"): scores, _key("add_space_prefix"): prefix}


def _key(name: str) -> str:
    return f"{PREFIX}{name}"


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
    """Whether a tokenizer.json splits texts in this way."""
    made = json_object(build({}, [], split).to_str().encode(), "tokenizer.json")
    ours, theirs = (_steps(one) for one in (parts, made))
    return ours == theirs


def _steps(parts: Mapping[str, Any]) -> tuple[Any, ...]:
    """How a tokenizer.json normalises and splits a text, and whether it keeps words that are pieces whole."""
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
    """Whether the tokenizer that the metadata describe splits texts like this one."""
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
