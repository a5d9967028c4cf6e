"""Other people's tokenizer files, each opened as one `tokenizers.Tokenizer`. Imports no torch, runs no code.

tokenizer.json says everything. Older files hold the pieces only: how a text is split and what stands around it
follows from what is in them, as in the programs that wrote them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import tokenizers

from clearhead.data.formats.byte_pairs import is_ranks, open_merges, open_ranks
from clearhead.data.formats.checked import AGAIN, guarded, read_limited
from clearhead.data.formats.sentence_pieces import SHIFTED_FILE, open_model
from clearhead.data.formats.special import (
    ADDED_FILE,
    CONFIG_FILE,
    NAMES_FILE,
    added_ids,
    honour,
    name_customary,
    settings_of,
)
from clearhead.data.formats.two_sided import IDS, SOURCE, TARGET, TARGET_IDS, Sides, open_sides
from clearhead.data.formats.wire import parse, parse_scores
from clearhead.data.formats.word_pieces import open_list
from clearhead.errors import UserError

MODEL_FILE = "tokenizer.json"
TEMPLATE_FILE = "chat_template.jinja"
LIST_FILE, MERGES_FILE = "vocab.txt", "merges.txt"
BESIDE = (CONFIG_FILE, NAMES_FILE, ADDED_FILE, TEMPLATE_FILE)
KEPT = (NAMES_FILE, ADDED_FILE, TEMPLATE_FILE)
"""Files that are written back byte for byte."""
ALL = (*BESIDE, SOURCE, TARGET, IDS, TARGET_IDS)
# In this order: the first that is there is the tokenizer.
MODELS = ("tokenizer.model", "spiece.model", SHIFTED_FILE, "*.spm")
RANKS = "*.tiktoken"
SCORES = "tok*.bin"
ALONE = (*MODELS, RANKS, SCORES)
KNOWN = f"{MODEL_FILE}, {SOURCE} with {TARGET}, {LIST_FILE}, {IDS} with {MERGES_FILE}, {', '.join(ALONE)}"

GENERIC = "PreTrainedTokenizerFast"
"""The class that reads tokenizer.json as it is; those named after a model build their own from its vocabulary."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What a folder holds: the pieces, and what their files say beside."""

    library: tokenizers.Tokenizer
    settings: dict[str, object]
    """tokenizer_config.json, with the special tokens named."""
    sides: Sides | None = None


def read_folder(folder: Path) -> dict[str, bytes]:
    """The files of a folder that may be of a tokenizer; only the first kind that is there is read."""
    names = [*BESIDE, MODEL_FILE]
    files = {name: content for name in names if (content := read_limited(folder / name)) is not None}
    if MODEL_FILE in files:
        return files
    others = [SOURCE, TARGET, IDS, TARGET_IDS, LIST_FILE, MERGES_FILE]
    try:
        there = sorted(path.name for path in folder.iterdir())
    except OSError:
        return files
    alone = [name for pattern in ALONE for name in there if fnmatchcase(name, pattern)]
    for name in others if {SOURCE, TARGET, LIST_FILE} & {*there} or {IDS, MERGES_FILE} <= {*there} else alone:
        if (content := read_limited(folder / name)) is not None:
            files[name] = content
    return files


def is_there(files: Mapping[str, bytes]) -> bool:
    """Whether a tokenizer is among the files."""
    return any(
        [
            MODEL_FILE in files,
            LIST_FILE in files,
            {SOURCE, TARGET} & files.keys(),
            {IDS, MERGES_FILE} <= files.keys(),
            *(fnmatchcase(name, pattern) for pattern in ALONE for name in files),
        ]
    )


def open_files(files: Mapping[str, bytes], where: str) -> Opened:
    """Raises UserError where there is none, or where it is not what its name says."""
    settings = settings_of(files, where)
    if MODEL_FILE not in files and {SOURCE, TARGET} & files.keys():
        if missing := [name for name in (SOURCE, TARGET, IDS) if name not in files]:
            raise UserError(f"{where}: expected {missing[0]}, got no such file; try the whole folder it came in")
        library, sides = guarded(
            lambda: open_sides(files, settings, where), f"{where}: expected a tokenizer", remedy=AGAIN
        )
        return Opened(library, settings, sides)
    added = added_ids(files, settings, where)
    if MODEL_FILE in files:
        message = f"{where}/{MODEL_FILE}: expected a tokenizer"
        library = guarded(
            lambda: tokenizers.Tokenizer.from_str(files[MODEL_FILE].decode("utf-8")), message, remedy=AGAIN
        )
        name_customary(library, settings)
    else:
        library = guarded(
            lambda: _converted(files, added, settings, where), f"{where}: expected a tokenizer", remedy=AGAIN
        )
        settings["tokenizer_class"] = GENERIC
    settings.setdefault("tokenizer_class", GENERIC)
    honour(library, files, settings, where)
    return Opened(library, settings)


def _converted(
    files: Mapping[str, bytes], added: dict[str, int], settings: dict[str, object], where: str
) -> tokenizers.Tokenizer:
    if LIST_FILE in files:
        return open_list(files[LIST_FILE], added, settings, f"{where}/{LIST_FILE}")
    if {IDS, MERGES_FILE} <= files.keys():
        return open_merges(files, added, settings, where)
    for pattern in ALONE:
        names = [name for name in files if fnmatchcase(name, pattern)]
        if len(names) > 1:
            raise UserError(f"{where}: expected one tokenizer, got {' and '.join(names[:3])}; try a folder for each")
        if names:
            return _alone(files[names[0]], names[0], settings, where)
    raise UserError(f"{where}: expected {KNOWN}, got no such file; try a folder that a run saved")


def _alone(content: bytes, name: str, settings: dict[str, object], where: str) -> tokenizers.Tokenizer:
    if fnmatchcase(name, RANKS) or is_ranks(content):
        return open_ranks(content, settings, f"{where}/{name}")
    if fnmatchcase(name, SCORES):
        return open_model(parse_scores(content, f"{where}/{name}"), name, settings, where)
    return open_model(parse(content, f"{where}/{name}"), name, settings, where)
