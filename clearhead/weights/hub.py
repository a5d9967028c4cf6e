"""A name -> a folder: one that is there, or one of the hub, by the hub library's cache, token and offline rules."""

import errno
import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from clearhead.errors import UserError, reason
from clearhead.weights.documents import INDEX, MODEL, Index, is_there, shown
from clearhead.weights.elsewhere import ADAPTER, other_form
from clearhead.weights.legacy import BIN, BIN_INDEX
from clearhead.weights.modules import MODULES, SETTINGS, TEXTS, listed

# All that is read besides the weights. Never code: what a repository says in Python is not asked for.
DOCUMENTS = (
    *("config.json", "generation_config.json", "README.md"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "*.jinja"),
    *("vocab.json", "vocab.txt", "vocab.bpe", "merges.txt", "*.tiktoken"),
    *("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model", "*.spm"),
    *("preprocessor_config.json", MODULES, SETTINGS, TEXTS, ADAPTER),
)
WEIGHTS = (MODEL, INDEX, BIN, BIN_INDEX)


NO_FOLDER = "expected a folder, which is not here, or"


def locate(name: str | Path, *, revision: str | None = None) -> Path:
    """The folder of that name, or else the hub's model of that name, downloaded where the cache has it not.

    Raises UserError, in one line, for a name of neither and for all that may go wrong on the way.
    """
    text = str(name)
    if (folder := _folder(text)) is not None:
        if revision is not None:
            raise UserError(
                f"{text}: expected no revision of a folder, got {shown(revision)}; try the name of a model on the hub"
            )
        return folder
    if isinstance(name, Path) or is_path(text):
        raise UserError(f"{shown(text)}: expected a folder with a model, found nothing; {nearest(text)}")
    return _download(text, revision)


def is_path(name: str) -> bool:
    """Whether a name can only be one of a folder: no model of the hub is called so."""
    return (
        name.startswith((".", "/", "~"))
        or "\\" in name
        or name.endswith("/")
        or re.match("[A-Za-z]:", name) is not None
        or name.count("/") > 1
        # The first folder is there, so what is missing is missing in it.
        or ("/" in name and _folder(str(Path(name).parent)) is not None)
    )


def nearest(name: str) -> str:
    """The remedy for a path that does not exist: the folder with the most similar name, if there is one."""
    try:
        path = Path(name).expanduser()
        beside = [one.name for one in path.parent.iterdir() if one.is_dir() and not one.name.startswith(".")]
    except (OSError, RuntimeError, ValueError):
        return "check the path"
    found = get_close_matches(path.name, beside, n=1)
    return f"try {shown(str(path.parent / found[0]))}" if found else "check the path"


def _folder(name: str) -> Path | None:
    try:
        path = Path(name).expanduser()
        is_file, is_dir = path.is_file(), path.is_dir()
    except (OSError, RuntimeError, ValueError):  # a name too long or with a null byte, a home that is not known
        return None
    if name and is_file:
        if (error := other_form([path.name], where=str(path.parent))) is not None:
            raise error
        raise UserError(f"{name}: expected a folder with a model, got a file; try the folder it is in")
    return path if name and is_dir else None


def _download(name: str, revision: str | None) -> Path:
    """Documents and whole weights, the folders that modules.json names, then only the shards that an index names, and
    a `.bin` only for want of others.
    """
    folder = _fetch(name, revision, (*DOCUMENTS, MODEL, INDEX))
    commit = folder.name
    places = list(dict.fromkeys([module.path for module in listed(folder)] or [""]))
    if within := [place for place in places if place]:
        _fetch(name, commit, [f"{place}/{file}" for place in within for file in (*DOCUMENTS, MODEL, INDEX)])
    if more := [str(PurePosixPath(place, file)) for place in places for file in _more_weights(folder / place)]:
        _fetch(name, commit, more)
    for place in places:
        if is_there(folder / place / BIN_INDEX) and not is_there(folder / place / BIN):
            shards = Index.read(folder / place / BIN_INDEX, suffix=".bin").shards
            _fetch(name, commit, [str(PurePosixPath(place, file)) for file in shards])
    if not any(is_there(folder / file) for file in (*WEIGHTS, ADAPTER)) and places == [""]:
        _refuse_other_form(name, commit)
    return folder


def _refuse_other_form(name: str, commit: str) -> None:
    """Raises UserError, which names the file, if the hub has the weights only in a form that is not read."""
    import huggingface_hub

    try:
        there = huggingface_hub.HfApi().list_repo_files(name, revision=commit)
    except Exception:
        return
    if (error := other_form(there, where=shown(name))) is not None:
        raise error


def _more_weights(folder: Path) -> list[str]:
    """The files of weights that are still to be downloaded into a folder."""
    if is_there(folder / MODEL):
        return []
    if is_there(folder / INDEX):
        return [*Index.read(folder / INDEX, suffix=".safetensors").shards]
    return [BIN, BIN_INDEX]


def _fetch(name: str, revision: str | None, patterns: Sequence[str]) -> Path:
    """The folder in the cache, with the files of these names in it that the repository has."""
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except Exception as error:  # the hub library's, its HTTP client's, its transfer's and the system's
        raise UserError(_explained(error, name, revision)) from error


def _explained(error: Exception, name: str, revision: str | None) -> str:
    """One line: what was expected, what came, what to do."""
    from huggingface_hub import HfApi, errors

    # Without its cause, a model that is not in the cache could be one that is not anywhere.
    unreached = isinstance(error, errors.LocalEntryNotFoundError)
    cause = error.__cause__ if unreached and error.__cause__ is not None else error
    match cause:
        case errors.HFValidationError():
            what = "expected a folder, or a model of the hub as name or owner/name, found neither; check the name"
        case errors.GatedRepoError():
            page = f"{HfApi().endpoint}/{name}"
            what = f"expected the access that its owners grant, got none; ask at {page}, then try `hf auth login`"
        case errors.RepositoryNotFoundError():
            what = "expected a folder or a model of the hub, found neither; check the name, or try `hf auth login`"
        case errors.RevisionNotFoundError():
            what = f"expected a branch, tag or commit of it, got {shown(repr(revision))}; try another revision"
        case errors.HfHubHTTPError():
            status = f"{cause.response.status_code} {cause.response.reason_phrase}"
            what = f"expected the hub to send it, got {shown(status)}; try again later, or `hf auth login`"
        case errors.OfflineModeIsEnabled():
            what = (
                f"{NO_FOLDER} all of it in the cache, as HF_HUB_OFFLINE is set; {_either(name, 'try once without it')}"
            )
        case _ if unreached:
            remedy = _either(name, "check the connection")
            what = f"{NO_FOLDER} the hub or all of it in the cache, got {reason(cause)}; {remedy}"
        case OSError() if cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            what = f"expected room in the cache, got {reason(cause)}; try another folder as HF_HOME"
        case _:
            what = f"expected to download it, got {reason(cause)}; try again, or another folder as HF_HOME"
    return f"{shown(name)}: {what}"


def _either(name: str, remedy: str) -> str:
    """The remedy for the hub, after that for a folder whose name is misspelt, where one here is like it."""
    found = nearest(name)
    return f"{found} if a folder is meant, else {remedy}" if found != "check the path" else remedy
