"""The results of probes on this machine, kept in one file for the next start.

A probe times the candidates for one choice, such as a number format. Its result holds as long as the machine, the
number of threads, PyTorch and the question stay the same. What cannot be read or written is asked anew: a file that is
damaged, or a folder that is read-only, stops nothing.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, TypeVar

import torch
from pydantic import Field, JsonValue, ValidationError

from clearhead.config import Config
from clearhead.errors import UserError
from clearhead.recipe.places import cache_folder

FILE = "CLEARHEAD_PROBES"
"""The environment variable that names another file; empty: results are neither read nor kept."""
MOST = 1000
"""The number of results that the file holds. The oldest give way."""
SETTINGS = ("ATEN_", "DNNL_", "GOMP_", "KMP_", "MKL_", "OMP_", "ONEDNN_")
"""Beginnings of environment variables that choose kernels and threads."""

Answer = TypeVar("Answer", bound=Config)


class Kept(Config):
    """One result in the file."""

    kind: str
    day: str
    """UTC, such as 2026-11-23."""
    answer: dict[str, JsonValue]


class _File(Config):
    format: Literal[1] = 1
    results: dict[str, Kept] = Field(default_factory=dict)
    """The results by a digest of machine, kind and question, the oldest first."""


def recall(kind: type[Answer], of: Mapping[str, JsonValue], *, device: str = "cpu") -> Answer | None:
    """The result that this machine kept for this question; None if there is none that can be read.

    `kind` is the form of the result, whose name and fields belong to the question; `of` is the rest of it, such as the
    shapes of a network. Everything that changes the result and is no fact of the machine must be in `of`.
    """
    found = _read().results.get(_digest(kind, of, device))
    try:
        return None if found is None else kind.model_validate(found.answer)
    except ValidationError:
        return None


def keep(answer: Config, of: Mapping[str, JsonValue], *, device: str = "cpu") -> None:
    """Keep a result for the next start. Two processes that keep one at once may lose one of the two."""
    path = file()
    if path is None:
        return
    digest, results = _digest(type(answer), of, device), dict(_read().results)
    results.pop(digest, None)
    day = datetime.now(UTC).date().isoformat()
    results[digest] = Kept(kind=type(answer).__name__, day=day, answer=answer.model_dump(mode="json"))
    newest = dict(list(results.items())[-MOST:])
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with suppress(OSError):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(_File(results=newest).model_dump_json(indent=1), encoding="utf-8")
            temporary.replace(path)
            _parsed.cache_clear()
        finally:
            temporary.unlink(missing_ok=True)


def file() -> Path | None:
    """The file of the results; None if they are not kept."""
    chosen = os.environ.get(FILE)
    if chosen is not None:
        return Path(chosen).absolute() if chosen else None
    try:
        return cache_folder() / "probes.json"
    except UserError:
        return None


def _read() -> _File:
    path = file()
    try:
        return _File() if path is None else _parsed(path, path.stat().st_mtime_ns)
    except (OSError, ValidationError):
        return _File()


@lru_cache(maxsize=1)
def _parsed(path: Path, _: int) -> _File:
    """The file as it was when it was changed last, for a step of generation asks several questions."""
    return _File.model_validate_json(path.read_bytes())


def _digest(kind: type[Config], of: Mapping[str, JsonValue], device: str) -> str:
    fields = sorted(kind.model_fields)
    question = [_machine(), torch.get_num_threads(), _named(device), kind.__name__, fields, dict(of)]
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:32]


@cache
def _machine() -> dict[str, JsonValue]:
    """The processor with its kernels, PyTorch, and the settings of the environment."""
    facts = {name: str(value) for name, value in torch.cpu.get_capabilities().items()}
    settings = {name: value for name, value in os.environ.items() if name.startswith(SETTINGS)}
    return {
        "cpu": dict(facts),
        "kernels": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        **settings,
    }


def _named(device: str) -> str:
    """The name of the device's make, such as that of a GPU."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return torch.device(device).type
