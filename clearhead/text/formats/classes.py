"""The reference library's class for a folder's tokenizer, and the vocabulary that it takes from the files.

Imports no torch. `checkpoints/families/tokenizers.toml` holds the classes.
"""

import base64
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import tokenizers
from pydantic import Field
from tokenizers import AddedToken

from clearhead.config import Config
from clearhead.errors import UserError
from clearhead.text.formats.checked import AGAIN, read_table
from clearhead.text.formats.special import CONFIG_FILE, content_of
from clearhead.text.formats.wire import Piece, PieceKind, PieceModel
from clearhead.text.merges import pair_of


class Numbered(Config):
    """Tokens with a number, such as `<unk_2>`, from `start` up to (excluding) the value of a setting."""

    pattern: str
    start: int
    setting: str
    stop: int
    score: float
    place: Literal["first", "last"]


class TokenizerClass(Config):
    """One class. `checkpoints/families/tokenizers.toml` explains its fields."""

    names: tuple[str, ...]
    algorithm: Literal["BPE", "WordPiece", "Unigram", "WordLevel"]
    splitting: str
    tokens: dict[str, str]
    single: str = ""
    pair: str = ""
    files: tuple[str, ...] = ()
    first: tuple[tuple[str, float], ...] = ()
    n_dropped: int = 0
    last: tuple[str, ...] = ()
    unknown: int | Literal["named", "first", "scored"] = 0
    extras: tuple[str, ...] = ()
    extras_are: Literal["default", "more", "fixed"] = "default"
    numbered: Numbered | None = None
    tokens_of_files: dict[str, str] = Field(default_factory=dict)
    lstrip: tuple[str, ...] = ()
    plain: bool = False
    language: str = ""
    languages: str = ""
    exact: bool = False
    listed: bool = False
    fuses: bool = False


class ClassChoice(Config):
    """Cases in which the class named by a file is not the one used."""

    forced: tuple[str, ...]
    unless_bytes: tuple[str, ...]


class Elsewhere(Config):
    """Classes that are not supported here."""

    names: tuple[str, ...]


class ClassTable(Config):
    """The whole file."""

    models: dict[str, str]
    usual: dict[str, str]
    languages: dict[str, tuple[str, ...]]
    choice: ClassChoice
    classes: tuple[TokenizerClass, ...]
    elsewhere: Elsewhere


@cache
def table() -> ClassTable:
    """The content of `checkpoints/families/tokenizers.toml`."""
    return read_table("tokenizers.toml", ClassTable)


def usual_class(vocabulary: str) -> TokenizerClass:
    """The class that reads this kind of vocabulary if no file names one."""
    return next(kind for kind in table().classes if table().usual[vocabulary] in kind.names)


def class_of(
    settings: Mapping[str, object], config: Mapping[str, object], *, holds_bytes: bool, is_older: bool, where: str
) -> TokenizerClass | None:
    """The class that tokenizer_config.json, config.json or the model type asks for, or None for the generic one.

    `holds_bytes` is whether tokenizer.json splits text into bytes, and `is_older` whether there is none: then the
    generic class has nothing to read. Raises UserError if the class is not supported here.
    """
    declared = str(settings.get("tokenizer_class") or config.get("tokenizer_class") or "").removesuffix("Fast")
    name = _name(settings, config, holds_bytes) or (declared if is_older else "")
    for kind in table().classes:
        if name in kind.names:
            return kind
    if name in table().elsewhere.names:
        raise UserError(
            f"{where}:tokenizer_class: expected a class whose rules are known here, got {name!r}; try saving the"
            " tokenizer as PreTrainedTokenizerFast"
        )
    return None


REFUSED = {"init_inputs": (), "sp_model_kwargs": ("M2M100Tokenizer", "SiglipTokenizer")}
REFUSED |= {"target_lang": ("Wav2Vec2CTCTokenizer",)}
"""Fields that change ids and are refused unless empty, and the classes that read them: all, where none is named."""


def check_settings(settings: Mapping[str, object], kind: TokenizerClass | None, where: str) -> None:
    """Raises UserError for a field of tokenizer_config.json that is refused."""
    for name, classes in REFUSED.items():
        if settings.get(name) and (not classes or (kind is not None and {*classes} & {*kind.names})):
            got = str(settings[name])[:40]
            raise UserError(f"{where}/tokenizer_config.json:{name}: expected none, got {got}; try without this field")


def _name(settings: Mapping[str, object], config: Mapping[str, object], holds_bytes: bool) -> str:
    """The name of the class, without the suffix Fast of older versions."""
    known, choice = table().models, table().choice
    kind = str(config.get("model_type"))
    declared = str(settings.get("tokenizer_class") or config.get("tokenizer_class") or "").removesuffix("Fast")
    of_model = known.get(kind)
    if declared in choice.unless_bytes and holds_bytes and of_model != "" and kind not in choice.forced:
        return ""
    if not declared:
        return of_model or ""
    if of_model is None or of_model == declared:
        return declared
    return of_model if kind in choice.forced or not of_model else declared


Settings = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The data that a class takes from a folder's files."""

    ids: Mapping[str, int]
    merges: list[tuple[str, str]]
    scores: list[tuple[str, float]]
    """The pieces and scores of a unigram model in the order of their ids. Empty for other models."""
    charsmap: bytes = b""
    """SentencePiece's table of characters."""
    is_json: bool = False
    """True if the vocabulary comes from tokenizer.json."""
    post_processor: Any = None
    """That of tokenizer.json, which puts special tokens around a text."""
    controls: tuple[AddedToken, ...] = ()
    """The control and user-defined pieces of a SentencePiece file."""
    exact: PieceModel | None = None
    """The pieces in the order of their ids, for a class that reads them as SentencePiece does."""


# --- vocabularies ---


def from_json(parts: Mapping[str, Any], library: tokenizers.Tokenizer, kind: TokenizerClass, where: str) -> Vocabulary:
    """The vocabulary in tokenizer.json. `parts` is its parsed content."""
    model = parts["model"]
    algorithm = model.get("type") or ("Unigram" if isinstance(model.get("vocab"), list) else kind.algorithm)
    if algorithm != kind.algorithm:
        raise UserError(
            f"{where}: expected a {kind.algorithm} model, as {kind.names[0]} has, got {algorithm}; try saving the"
            " tokenizer as PreTrainedTokenizerFast"
        )
    steps = parts.get("normalizer") or {}
    tables = [step for step in steps.get("normalizers", [steps]) if step.get("type") == "Precompiled"]
    charsmap = base64.b64decode(tables[0]["precompiled_charsmap"]) if tables else b""
    if kind.algorithm == "Unigram":
        scores = [(str(piece), float(score)) for piece, score in model["vocab"]]
        return Vocabulary({}, [], scores, charsmap, True, library.post_processor)
    merges = [pair_of(merge) for merge in model.get("merges", [])]
    return Vocabulary(model["vocab"], merges, [], charsmap, True, library.post_processor)


def from_pieces(
    model: PieceModel, kind: TokenizerClass, settings: Settings, where: str, ids: Mapping[str, int] | None = None
) -> Vocabulary:
    """The vocabulary in a SentencePiece file, numbered as this class numbers it, or by `ids`."""
    controls = tuple(
        AddedToken(piece.text, normalized=False, special=piece.kind is PieceKind.CONTROL)
        for piece in model.pieces
        if piece.kind in (PieceKind.CONTROL, PieceKind.USER_DEFINED)
    )
    if kind.algorithm == "BPE" and not kind.exact:
        places = {piece.text: place for place, piece in enumerate(model.pieces)}
        return Vocabulary(places, _merges(places), [], model.charsmap, controls=controls)
    named = {**kind.tokens, **kind.tokens_of_files}
    names = {role: content_of(settings.get(role, default)) for role, default in named.items()}
    pieces = _numbered_pieces(model, kind, settings, names, where, ids)
    if kind.exact:
        at = next(place for place, piece in enumerate(pieces) if piece.kind is PieceKind.UNKNOWN)
        model = replace(model, pieces=tuple(pieces), unk_id=at)
        return Vocabulary({}, [], [], controls=controls, exact=model)
    # The file's exact float32 with as many digits as tokenizer.json keeps: the last bits decide between splits that
    # score almost the same.
    exact = [float(f"{score:.15g}") for score in array("f", [piece.score for piece in pieces])]
    scores = [(piece.text, score) for piece, score in zip(pieces, exact, strict=True)]
    return Vocabulary({}, [], scores, model.charsmap, controls=controls)


def languages(kind: TokenizerClass, settings: Settings, where: str) -> list[str]:
    """The tokens of the languages that a class knows."""
    if not kind.languages:
        return []
    name = settings.get("language_codes") or kind.languages
    if (codes := table().languages.get(str(name))) is None:
        known = ", ".join(table().languages)
        raise UserError(f"{where}/{CONFIG_FILE}:language_codes: expected one of {known}, got {str(name)[:40]!r}")
    return [language(kind, code) for code in codes]


def language(kind: TokenizerClass, code: str) -> str:
    """The token of a language: fr_XX, or __fr__."""
    return f"__{code}__" if kind.language.startswith("__") and not code.startswith("__") else code


def _numbered_pieces(
    model: PieceModel,
    kind: TokenizerClass,
    settings: Settings,
    names: Mapping[str, str | None],
    where: str,
    ids: Mapping[str, int] | None,
) -> list[Piece]:
    """The pieces as this class numbers them, or as `ids` does, with those that it adds."""
    unknown = names.get("unk_token")

    def mark(name: str, score: float = 0.0) -> Piece:
        return Piece(name, score, PieceKind.UNKNOWN if name == unknown else PieceKind.CONTROL)

    if ids is None and kind.listed:
        raise UserError(
            f"{where}: expected vocab.json, which numbers the pieces, got no such file; try the whole folder"
        )
    if kind.exact and any(piece.kind is PieceKind.NORMAL for piece in model.pieces[: kind.n_dropped]):
        raise UserError(f"{where}: expected {kind.n_dropped} special pieces first, got others; try tokenizer.json")
    if ids is None:
        first = [*_first(kind, names, where), *numbered(kind, settings, "first", where)]
        pieces = [*(mark(name, score) for name, score in first), *model.pieces[kind.n_dropped :]]
    else:
        known = {piece.text: piece for piece in model.pieces if piece.kind is not PieceKind.UNKNOWN}
        missing = [text for text, piece in known.items() if piece.kind is not PieceKind.CONTROL and text not in ids]
        if missing or sorted(ids.values()) != [*range(len(ids))] or unknown not in ids:
            got = f"none for {missing[0]!r}" if missing else "gaps"
            raise UserError(f"{where}/vocab.json: expected an id for {unknown} and every piece, got {got}; {AGAIN}")
        own = {*names.values()}
        ordered = sorted(ids, key=ids.__getitem__)
        pieces = [mark(t) if t in own else known.get(t, Piece(t, 0.0, PieceKind.UNUSED)) for t in ordered]
    last = [*languages(kind, settings, where), *(filled(name, names, where) for name in kind.last)]
    numbers = reversed(numbered(kind, settings, "last", where))
    return [*pieces, *map(mark, last), *(mark(name, score) for name, score in numbers)]


def _first(kind: TokenizerClass, names: Mapping[str, str | None], where: str) -> Iterable[tuple[str, float]]:
    seen: set[str] = set()
    for name, score in kind.first:
        role = name.strip("{}")
        if role in kind.tokens_of_files and (names[role] is None or names[role] in seen):
            continue  # A token that the settings disable, or one already placed.
        seen.add(filled(name, names, where))
        yield filled(name, names, where), score


def numbered(kind: TokenizerClass, settings: Settings, place: str, where: str) -> list[tuple[str, float]]:
    """The numbered tokens that go to `place`, with their scores."""
    rule = kind.numbered
    if rule is None or rule.place != place:
        return []
    stop = settings.get(rule.setting, rule.stop)
    if not isinstance(stop, int) or not 0 <= stop <= 10_000:
        raise UserError(f"{where}/{CONFIG_FILE}:{rule.setting}: expected a count up to 10000, got {str(stop)[:40]!r}")
    return [(rule.pattern.format(i), rule.score) for i in range(rule.start, stop)]


def filled(name: str, names: Mapping[str, str | None], where: str) -> str:
    """Resolves "{pad_token}" to that token's text. Any other name stands for itself."""
    role = name.strip("{}")
    if role == name:
        return name
    token = names[role]
    if token is None:
        raise UserError(f"{where}/{CONFIG_FILE}:{role}: expected a token, got none; try naming it there")
    return token


def _merges(ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Every pair of pieces that spells a third piece, ordered by the third's id."""
    splits = [
        (number, cut, piece[:cut], piece[cut:])
        for piece, number in ids.items()
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    ]
    return [(left, right) for *_, left, right in sorted(splits)]
