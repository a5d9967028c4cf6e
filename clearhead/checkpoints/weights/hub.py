"""Finds the folder of a name, local or on the hub, and uploads one, by the hub library's cache and token."""

import errno
import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from clearhead.checkpoints.weights.documents import (
    ADAPTER,
    ADAPTER_HEAD,
    ADAPTER_WEIGHTS,
    INDEX,
    MODEL,
    Index,
    is_there,
    other_form,
    shown,
)
from clearhead.checkpoints.weights.gguf import SUFFIX
from clearhead.checkpoints.weights.legacy import BIN, BIN_INDEX
from clearhead.checkpoints.weights.modules import MODULES, SETTINGS, TEXTS, listed
from clearhead.errors import UserError, reason

# All that is read besides the weights. A repository's Python code is never downloaded.
DOCUMENTS = (
    *("config.json", "generation_config.json", "README.md"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "*.jinja"),
    *("vocab.json", "vocab.txt", "vocab.bpe", "merges.txt", "*.tiktoken"),
    *("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model", "*.spm"),
    *("preprocessor_config.json", MODULES, SETTINGS, TEXTS, ADAPTER, ADAPTER_WEIGHTS, ADAPTER_HEAD),
)
WEIGHTS = (MODEL, INDEX, BIN, BIN_INDEX)


NO_FOLDER = "expected a local folder, or"


def locate(name: str | Path, *, revision: str | None = None) -> Path:
    """The folder or GGUF file of that name, or the hub's model of that name, downloaded unless it is in the cache.

    Raises UserError, in one line, for an unknown name and for a download that fails.
    """
    if not isinstance(name, str | Path):
        raise UserError(f"name: expected a folder or the name of a model, got {name!r:.60}; try 'runs/NAME'")
    text = str(name)
    if (folder := local_folder(text)) is not None:
        if revision is not None:
            raise UserError(
                f"{text}: expected no revision of a folder, got {shown(revision)}; try the name of a model on the hub"
            )
        return folder
    if isinstance(name, Path) or is_path(text):
        raise UserError(f"{shown(text)}: expected a folder with a model, found nothing; {nearest(text)}")
    return _download(text, revision)


def is_path(name: str) -> bool:
    """Returns True if a name can only be that of a folder, because no model of the hub can have it."""
    return (
        name.startswith((".", "/", "~"))
        or "\\" in name
        or name.endswith("/")
        or re.match("[A-Za-z]:", name) is not None
        or name.count("/") > 1
        # The first folder exists, so something is missing in it.
        or ("/" in name and local_folder(str(Path(name).parent)) is not None)
    )


def nearest(name: str) -> str:
    """The remedy for a path that does not exist: the folder with the most similar name, if any."""
    try:
        path = Path(name).expanduser()
        beside = [one.name for one in path.parent.iterdir() if one.is_dir() and not one.name.startswith(".")]
    except (OSError, RuntimeError, ValueError):
        return "check the path"
    found = get_close_matches(path.name, beside, n=1)
    return f"try {shown(str(path.parent / found[0]))}" if found else "check the path"


def local_folder(name: str) -> Path | None:
    """The folder of this name on this machine, if there is one. Raises UserError for a file."""
    try:
        path = Path(name) if Path(name).exists() else Path(name).expanduser()  # A folder here may be named ~.
        is_file, is_dir = path.is_file(), path.is_dir()
    except (OSError, RuntimeError, ValueError):  # a name too long or with a null byte, a home that is not known
        return None
    if name and is_file and path.suffix != SUFFIX:
        if (error := other_form([path.name], where=str(path.parent))) is not None:
            raise error
        raise UserError(f"{name}: expected a folder with a model, got a file; try the folder it is in")
    return path if name and (is_dir or is_file) else None


def fetched_config(name: str, revision: str | None) -> Path | None:
    """The config.json of the hub's model of that name, downloaded alone; None if it is not a folder of its own.

    Raises UserError like `locate`.
    """
    if is_path(name):
        return None
    folder = _fetch(name, revision, ("config.json", MODULES))
    file = folder / "config.json"
    return file if is_there(file) and not is_there(folder / MODULES) else None


def _download(name: str, revision: str | None) -> Path:
    """Downloads documents and whole weights, the folders that modules.json names, then only the shards that an index
    names, and a `.bin` only if there is nothing else.
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
    """Raises UserError, which names the file, if the hub has the weights only in an unsupported form."""
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
    """Downloads these files, as far as the repository has them, and returns their folder in the cache."""
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except Exception as error:  # errors of the hub library, its HTTP client, its transfer and the system
        raise UserError(_explained(error, name, revision)) from error


def _explained(error: Exception, name: str, revision: str | None) -> str:
    """The error as one line: the expectation, the answer, and the remedy."""
    from huggingface_hub import HfApi, errors

    # Without the cause, the message could not tell a model that is not cached from one that does not exist.
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
            remedy = _either(name, "try once without it")
            what = f"{NO_FOLDER} the whole model in the hub's cache, as HF_HUB_OFFLINE is set; {remedy}"
        case _ if unreached:
            remedy = _either(name, "check the connection")
            what = f"{NO_FOLDER} the model on the hub or in its cache, got {reason(cause)}; {remedy}"
        case OSError() if cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            what = f"expected room in the cache, got {reason(cause)}; try another folder as HF_HOME"
        case _:
            what = f"expected to download it, got {reason(cause)}; try again, or another folder as HF_HOME"
    return f"{shown(name)}: {what}"


def _either(name: str, remedy: str) -> str:
    """The remedy for the hub, after a similar local folder's name if there is one."""
    found = nearest(name)
    return f"{found} if a folder is meant, else {remedy}" if found != "check the path" else remedy


# --- uploads -------------------------------------------------------------------------------------------------------

NOT_SENT = ("MANIFEST.json", ".*")
"""Files that are not uploaded: the hub keeps its own checksums, and people may edit a file there."""


def upload(folder: Path, repository: str, *, private: bool) -> str:
    """Upload the folder's files to a repository of models, which is made if needed; returns its address.

    `private` makes a new repository visible only to its owner; an existing one stays as it is. Raises UserError, in one
    line, for an upload that fails.
    """
    import huggingface_hub

    api = huggingface_hub.HfApi()
    try:
        place = api.create_repo(repository, private=private, exist_ok=True, repo_type="model")
        api.upload_folder(
            repo_id=place.repo_id,
            folder_path=folder,
            ignore_patterns=[*NOT_SENT],
            commit_message="Upload by clearhead",
        )
    except Exception as error:  # errors of the hub library, its HTTP client and the system
        raise UserError(f"{shown(repository)}: {_upload_explained(error)}") from error
    return str(place)


def _upload_explained(error: Exception) -> str:
    from huggingface_hub import errors

    match error:
        case errors.HFValidationError():
            return "expected a name on the hub, such as owner/name, got another text; check the name"
        case errors.LocalTokenNotFoundError():
            return "expected a token that may write, got none; try `hf auth login`, or HF_TOKEN"
        case errors.HfHubHTTPError() if error.response.status_code == 401:
            return "expected a token that may write, got none that the hub knows; try `hf auth login`, or HF_TOKEN"
        case errors.HfHubHTTPError() if error.response.status_code in (403, 404):
            return (
                "expected a token that may write there, got one that may not; check the owner, and the token's rights"
            )
        case errors.HfHubHTTPError():
            status = f"{error.response.status_code} {error.response.reason_phrase}"
            return f"expected the hub to accept it, got {shown(status)}; try again later"
        case errors.OfflineModeIsEnabled():
            return "expected the hub, got HF_HUB_OFFLINE, which is set; try without it"
        case _:
            return f"expected to reach the hub, got {shown(reason(error))}; check the connection"
