"""The reference library's class for a folder's tokenizer, and the properties of that class. Imports no torch.

`families/tokenizers.toml` holds the classes.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Literal

from pydantic import Field

from clearhead.config import Config
from clearhead.errors import UserError


class Numbered(Config):
    """Tokens with a number, such as `<unk_2>`, from `start` up to (excluding) the value of a setting."""

    pattern: str
    start: int
    setting: str
    stop: int
    score: float
    place: Literal["first", "last"]


class TokenizerClass(Config):
    """One class. `families/tokenizers.toml` explains its fields."""

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
    languages: dict[str, tuple[str, ...]]
    choice: ClassChoice
    classes: tuple[TokenizerClass, ...]
    elsewhere: Elsewhere


@cache
def table() -> ClassTable:
    """The content of `families/tokenizers.toml`."""
    text = resources.files("clearhead.checkpoints.families").joinpath("tokenizers.toml").read_text(encoding="utf-8")
    return ClassTable.model_validate(tomllib.loads(text))


def class_of(
    settings: Mapping[str, object], config: Mapping[str, object], *, holds_bytes: bool, is_older: bool, where: str
) -> TokenizerClass | None:
    """The class that tokenizer_config.json, config.json or the model type asks for, or None for the generic one.

    `holds_bytes` is whether tokenizer.json splits text into bytes, and `is_older` whether there is none: then the
    generic class has nothing to read. Raises UserError if the class is not supported here.
    """
    declared = str(settings.get("tokenizer_class") or config.get("tokenizer_class") or "").removesuffix("Fast")
    name = _name(settings, config, holds_bytes) or (declared if is_older else "")
    for one in table().classes:
        if name in one.names:
            return one
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
