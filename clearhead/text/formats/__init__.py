"""Opens other libraries' tokenizer files as one `tokenizers.Tokenizer`. Imports no torch, runs no code.

tokenizer.json is complete. Older files hold only the pieces. From these follows how a text is split and which
special tokens surround it, as in the programs that wrote them.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import tokenizers

from clearhead.errors import UserError
from clearhead.json_text import NotJson
from clearhead.text.formats.bounds import check, unbounded
from clearhead.text.formats.byte_pairs import (
    SINGLE_DIGITS,
    WORDS_2019,
    is_ranks,
    open_ranks,
    pattern_of,
    read_merges,
)
from clearhead.text.formats.checked import AGAIN, guarded, json_object, numbers, read_limited, vocabulary
from clearhead.text.formats.classes import (
    TokenizerClass,
    Vocabulary,
    check_settings,
    class_of,
    from_json,
    from_pieces,
    usual_class,
)
from clearhead.text.formats.rebuilt import build, set_template, tokens_of_class
from clearhead.text.formats.sentence_pieces import (
    IDS,
    SHIFTED_FILE,
    SOURCE,
    TARGET,
    TARGET_IDS,
    Sides,
    open_model,
    open_sides,
)
from clearhead.text.formats.special import (
    ADDED_FILE,
    CONFIG_FILE,
    EXTRA,
    NAMES_FILE,
    OLDER_EXTRA,
    content_of,
    honour,
    name_customary,
    settings_of,
)
from clearhead.text.formats.splitting import LETTERS
from clearhead.text.formats.wire import parse, parse_scores

MODEL_FILE = "tokenizer.json"
TEMPLATE_FILE = "chat_template.jinja"
LIST_FILE, MERGES_FILE = "vocab.txt", "merges.txt"
MODEL_CONFIG = "config.json"
"""The network's config. Its model type implies a tokenizer class."""
BESIDE = (CONFIG_FILE, NAMES_FILE, ADDED_FILE, TEMPLATE_FILE)
KEPT = (NAMES_FILE, ADDED_FILE, TEMPLATE_FILE)
"""Files that are written back byte for byte."""
ALL = (*BESIDE, SOURCE, TARGET, IDS, TARGET_IDS)
# In order of preference: the first present is the tokenizer.
SINGLE_PIECES = ("tokenizer.model", "spiece.model", "spm.model", SHIFTED_FILE)
MODELS = (*SINGLE_PIECES, "*.spm")
RANKS = "*.tiktoken"
SCORES = "tok*.bin"
ALONE = (*MODELS, RANKS, SCORES)
KNOWN = f"{MODEL_FILE}, {SOURCE} with {TARGET}, {LIST_FILE}, {IDS} with {MERGES_FILE}, {', '.join(ALONE)}"

GENERIC = "PreTrainedTokenizerFast"
"""The class that reads tokenizer.json unchanged. Classes named after a model rebuild theirs from its vocabulary."""


@dataclass(frozen=True, slots=True)
class OpenedTokenizer:
    """A folder's tokenizer and its settings."""

    library: tokenizers.Tokenizer
    settings: dict[str, object]
    """tokenizer_config.json, with the special tokens named."""
    sides: Sides | None = None
    is_kept: bool = False
    """True if its files are written back byte for byte, because tokenizer.json has no such tokenizer."""


def read_folder(folder: Path) -> dict[str, bytes]:
    """The contents of a folder's possible tokenizer files. Reads only the first kind present."""
    names = [*BESIDE, MODEL_FILE, MODEL_CONFIG]
    files = {name: content for name in names if (content := read_limited(folder / name)) is not None}
    if MODEL_FILE in files:
        return files
    others = [SOURCE, TARGET, IDS, TARGET_IDS, LIST_FILE, MERGES_FILE]
    try:
        there = sorted(path.name for path in folder.iterdir())
    except OSError:
        return files
    alone = [name for pattern in ALONE for name in there if fnmatchcase(name, pattern)]
    if (
        IDS in there
        and not {SOURCE, TARGET, LIST_FILE, MERGES_FILE} & {*there}
        and not alone
        and _spells(files, folder)
    ):
        alone = [IDS]
    if SHIFTED_FILE in alone:
        alone.append(IDS)  # It may number the pieces.
    for name in others if {SOURCE, TARGET, LIST_FILE} & {*there} or {IDS, MERGES_FILE} <= {*there} else alone:
        if (content := read_limited(folder / name)) is not None:
            files[name] = content
    return files


def _spells(files: Mapping[str, bytes], folder: Path) -> bool:
    """True if the folder's class reads a list of letters."""
    kind = _class(files, settings_of(files, str(folder)), str(folder))
    return kind is not None and kind.splitting == LETTERS


def is_there(files: Mapping[str, bytes]) -> bool:
    """True if `read_folder` found a tokenizer."""
    return not files.keys() <= {*BESIDE, MODEL_CONFIG}


def open_files(files: Mapping[str, bytes], where: str) -> OpenedTokenizer:
    """Opens a tokenizer. Raises UserError if there is none, or if a file is not of the kind its name promises."""
    settings = settings_of(files, where)
    if MODEL_FILE not in files and {SOURCE, TARGET} & files.keys():
        if missing := [name for name in (SOURCE, TARGET, IDS) if name not in files]:
            raise UserError(f"{where}: expected {missing[0]}, got no such file; try the whole folder it came in")
        library, sides = guarded(
            lambda: open_sides(files, settings, where), f"{where}: expected a tokenizer", remedy=AGAIN
        )
        return OpenedTokenizer(library, settings, sides)
    kind = _class(files, settings, where)
    check_settings(settings, kind, where)
    name = MODEL_FILE if MODEL_FILE in files else _name(files, where)
    message = f"{where}/{name}: expected a tokenizer"
    library = guarded(lambda: _opened(files, name, kind, settings, where), message, remedy=AGAIN)
    if name != MODEL_FILE and (kind is None or kind.splitting != LETTERS):
        settings["tokenizer_class"] = GENERIC
    settings.setdefault("tokenizer_class", GENERIC)
    if OLDER_EXTRA in settings:  # counts only without the newer name
        older = settings.pop(OLDER_EXTRA)
        settings.setdefault(EXTRA, older)
    return OpenedTokenizer(library, settings, is_kept=kind is not None and kind.splitting == LETTERS)


def _class(files: Mapping[str, bytes], settings: Mapping[str, object], where: str) -> TokenizerClass | None:
    """The reference library's class for these files, or None if it reads tokenizer.json unchanged."""
    config = json_object(files.get(MODEL_CONFIG, b"{}"), f"{where}/{MODEL_CONFIG}")
    by = CONFIG_FILE if settings.get("tokenizer_class") else MODEL_CONFIG
    holds_bytes = b'"ByteLevel"' in files.get(MODEL_FILE, b"")
    is_older = MODEL_FILE not in files
    return class_of(settings, config, holds_bytes=holds_bytes, is_older=is_older, where=f"{where}/{by}")


def _opened(
    files: Mapping[str, bytes], name: str, kind: TokenizerClass | None, settings: dict[str, object], where: str
) -> tokenizers.Tokenizer:
    """The library's tokenizer with every token that the files name, and its template."""
    if name == MODEL_FILE:
        document = files[MODEL_FILE].decode("utf-8")
        with suppress(NotJson):  # The library's own words say what is wrong.
            if unbounded(json_object(files[MODEL_FILE], f"{where}/{MODEL_FILE}")):
                check(document)
        library = tokenizers.Tokenizer.from_str(document)
        present = sorted(library.get_added_tokens_decoder().items())
        if kind is None:
            name_customary(library, settings)
            honour(library, files, settings, where, present=present)
            return library
        parts = json_object(files[MODEL_FILE], f"{where}/{MODEL_FILE}")
        vocabulary = from_json(parts, library, kind, f"{where}/{MODEL_FILE}")
    else:
        present = list[tuple[int, tokenizers.AddedToken]]()
        kind = kind or _implied_class(files, name, settings, where)
        if kind is None:
            library = _pieces(files[name], name, settings, where)
            honour(library, files, settings, where)
            return library
        vocabulary = _vocabulary(files, name, kind, settings, where)
    library = build(vocabulary, kind, settings, where)
    honour(
        library, files, settings, where, by_class=tokens_of_class(kind, vocabulary, settings, where), present=present
    )
    set_template(library, vocabulary, kind, settings, where)
    return library


def _vocabulary(
    files: Mapping[str, bytes], name: str, kind: TokenizerClass, settings: Mapping[str, object], where: str
) -> Vocabulary:
    """The vocabulary that a class reads from an older file."""
    place = f"{where}/{name}"
    if name == LIST_FILE and kind.algorithm in ("WordPiece", "WordLevel"):
        return Vocabulary(numbers(files[name], place), [], [])
    if name == IDS and kind.splitting == LETTERS:
        return Vocabulary(vocabulary(files[IDS], place), [], [])
    if name == IDS and kind.algorithm == "BPE" and not kind.files:
        ids = vocabulary(files[IDS], place)
        return Vocabulary(ids, read_merges(files[MERGES_FILE], ids, f"{where}/{MERGES_FILE}"), [])
    if name in kind.files:
        ids = vocabulary(files[IDS], f"{where}/{IDS}") if kind.listed and IDS in files else None
        return from_pieces(parse(files[name], place), kind, settings, where, ids)
    wanted = {"WordPiece": LIST_FILE, "WordLevel": LIST_FILE, "BPE": f"{IDS} and {MERGES_FILE}"}
    expected = " or ".join(kind.files) or wanted.get(kind.algorithm, MODEL_FILE)
    remedy = f"try {MODEL_FILE}" if expected != MODEL_FILE else "try saving the tokenizer as PreTrainedTokenizerFast"
    raise UserError(f"{place}: expected {expected}, which {kind.names[0]} reads, got another kind of file; {remedy}")


def _name(files: Mapping[str, bytes], where: str) -> str:
    """The name of the file that holds the tokenizer."""
    if LIST_FILE in files:
        return LIST_FILE
    if IDS in files and SHIFTED_FILE not in files:
        return IDS
    for pattern in ALONE:
        names = [name for name in files if fnmatchcase(name, pattern)]
        if len(names) > 1:
            raise UserError(f"{where}: expected one tokenizer, got {' and '.join(names[:3])}; try a folder for each")
        if names:
            return names[0]
    raise UserError(f"{where}: expected {KNOWN}, got no such file; try a folder that a run saved")


def _implied_class(
    files: Mapping[str, bytes], name: str, settings: Mapping[str, object], where: str
) -> TokenizerClass | None:
    """The class that reads a vocabulary if no file names one, with the special tokens that are there; None for pieces.

    Raises UserError for a vocabulary without an unknown token, and for pieces that an unknown class numbers.
    """
    place = f"{where}/{name}"
    if name == LIST_FILE:
        kind, ids = usual_class("words"), numbers(files[name], place)
        unknown = content_of(settings.get("unk_token")) or "[UNK]"
        if unknown not in ids:
            raise UserError(f"{place}: expected {unknown} among the pieces, got none; try the file it came with")
        if not {"[CLS]", "[SEP]"} <= ids.keys():
            kind = kind.model_copy(update={"single": "", "pair": ""})
    elif name == IDS:
        ids = vocabulary(files[IDS], place)
        words = [left + right for left, right in read_merges(files[MERGES_FILE], ids, f"{where}/{MERGES_FILE}")]
        if {"<s>", "</s>", "<mask>"} <= ids.keys() and "add_bos_token" not in settings:
            kind = usual_class("masked")
        else:
            is_older = pattern_of(words, where, among=(WORDS_2019, SINGLE_DIGITS)) == WORDS_2019
            splitting = {} if is_older else {"splitting": "single_digits"}
            kind = usual_class("bytes").model_copy(update=splitting)
    else:
        if "tokenizer_class" in settings and name in SINGLE_PIECES:
            raise UserError(
                f"{where}/{CONFIG_FILE}:tokenizer_class: expected a class that numbers the pieces of {name}, got"
                f" {str(settings['tokenizer_class'])[:40]!r}; try {MODEL_FILE}, or the class of the model's own library"
            )
        if name != SHIFTED_FILE:
            return None
        # As SentencePiece itself reads the text.
        return usual_class("pieces").model_copy(update={"exact": True})
    there = {role: token for role, token in kind.tokens.items() if token in ids}
    return kind.model_copy(update={"tokens": there})


def _pieces(content: bytes, name: str, settings: dict[str, object], where: str) -> tokenizers.Tokenizer:
    """The tokenizer of a file of pieces as its own program reads it."""
    if fnmatchcase(name, RANKS) or is_ranks(content):
        return open_ranks(content, settings, f"{where}/{name}")
    if fnmatchcase(name, SCORES):
        return open_model(parse_scores(content, f"{where}/{name}"), settings, f"{where}/{name}")
    return open_model(parse(content, f"{where}/{name}"), settings, f"{where}/{name}")
