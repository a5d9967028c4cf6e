"""`capture` writes activations of a data set to a folder of shards. After a kill it continues, to equal bytes.

A shard is written under a temporary name, through to the disk, and renamed. MANIFEST.json, which is replaced after each
shard, lists the complete ones with their SHA-256 sums. A shard that it does not list is written again.
"""

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Literal

import safetensors
import torch
from pydantic import Field, ValidationError
from safetensors.torch import save_file
from torch import Tensor

from clearhead.api.base import ModelBase
from clearhead.capture.passes import BATCH_TOKENS, Plan, Positions, Window, recorded, windows
from clearhead.capture.reading import ABOUT, INDEX, Captured, shard_name
from clearhead.capture.texts import Digest, Text, Texts
from clearhead.checkpoints.weights.documents import read_json
from clearhead.config import Config
from clearhead.errors import UserError, expectation, reason
from clearhead.storage.disk import replace_file, temporary_file
from clearhead.storage.manifest import MANIFEST, Entry, render, seal, sync, verify
from clearhead.storage.tensors import model_tensors
from clearhead.version import __version__

SHARD_BYTES = 512 << 20
MOST_SHARDS = 4000
_log = logging.getLogger("clearhead")


class CaptureSettings(Config):
    """The values that a capture keeps of each text, and their format."""

    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    positions: Positions = "all"
    sample: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """The share of the rows that are kept, chosen by a hash of seed, text and position."""
    seed: int = 0
    length: Annotated[int, Field(ge=1)] | None = None
    """Tokens of a text at most; None: the model's longest length."""
    shard_bytes: Annotated[int, Field(ge=1)] = SHARD_BYTES


def capture(
    model: ModelBase,
    texts: Iterable[Text],
    at: Iterable[str],
    folder: str | Path,
    *,
    name: str = "model",
    **settings: Any,
) -> Captured:
    """Writes the values at these addresses for every text to a folder, or completes a folder that was begun.

    `texts` are texts, or pairs of texts for a model that reads two. An address may have indices, and * for any part of
    a path. `settings` are the fields of `CaptureSettings`. On one machine with one number of threads, a capture that
    was killed and goes on writes the same bytes as one that was not. Raises UserError for a folder of another model,
    other data or other settings.
    """
    chosen, folder = _checked(settings), Path(folder)
    plan = Plan.of(
        model, [*at], positions=chosen.positions, sample=chosen.sample, seed=chosen.seed, length=chosen.length
    )
    about = _about(plan, chosen, name, texts)
    entries, done, digest = _begin(folder, about)
    if INDEX in entries:
        _check_complete(folder, texts, done, digest)
        return Captured(folder)
    writer, dtype = _Writer(folder, entries, done), getattr(torch, chosen.dtype)
    with writer:
        for window in windows(plan, texts, chosen.shard_bytes // dtype.itemsize, skip=done, expected=digest):
            rows = {f"{group}.{name}": values for group in plan.groups for name, values in window.rows(group).items()}
            writer.add(window, recorded(plan, window, dtype) | {at: torch.from_numpy(one) for at, one in rows.items()})
    writer.end()
    return Captured(folder)


def _checked(settings: Mapping[str, Any]) -> CaptureSettings:
    """The settings. Raises UserError, which names the first that is wrong."""
    try:
        return CaptureSettings.model_validate(settings)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = "--" + str(first["loc"][0]).replace("_", "-")
        expected = expectation(first)
        raise UserError(f"{field}: {expected}, got {first['input']!r}; try clearhead capture --help") from None


class _Writer:
    """Writes shards in a thread, one behind the forward passes."""

    def __init__(self, folder: Path, entries: dict[str, Entry], done: int) -> None:
        self._folder, self._entries, self._end = folder, entries, done
        self._waiting: Future[None] | None = None

    def __enter__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown(wait=True)
        if error[0] is None and self._waiting is not None:
            self._waiting.result()

    def add(self, window: Window, tensors: Mapping[str, Tensor]) -> None:
        """Writes a shard soon. Raises the error of the one before."""
        if self._waiting is not None:
            self._waiting.result()
        if len(self._entries) > MOST_SHARDS:
            raise UserError(
                f"--shard-mb: expected at most {MOST_SHARDS:,} shards, for which the manifest has room, got more;"
                " try larger ones in another --out"
            )
        self._waiting = self._thread.submit(self._write, window, tensors)

    def end(self) -> None:
        """Writes the index, which says that the capture is complete."""
        shards = [name for name in self._entries if name != ABOUT]
        _keep(self._folder, INDEX, _json({"texts": self._end, "shards": shards}), self._entries, self._end)

    def _write(self, window: Window, tensors: Mapping[str, Tensor]) -> None:
        place = self._folder / shard_name(len(self._entries) - 1)
        temporary = temporary_file(place)
        facts = {"texts": [window.begin, window.end], "cut": window.n_cut, "read": window.digest}
        try:
            # One key, because the library orders several at random.
            save_file(dict(tensors), temporary, metadata={"capture": json.dumps(facts)})
            temporary.chmod(self._folder.stat().st_mode & 0o666)
            entry = seal(temporary, "tensors")
            os.replace(temporary, place)  # noqa: PTH105 - one system call, one name to fail in tests
            sync(self._folder)
        except (OSError, safetensors.SafetensorError) as error:
            raise UserError(
                f"{place}: expected to write it, got {reason(error)}; make room, and give the same command again"
            ) from None
        self._entries[place.name], self._end = entry, window.end
        replace_file(self._folder / MANIFEST, render(window.end, self._entries))


# --- the folder -----------------------------------------------------------------------------------------------------


def _about(plan: Plan, settings: CaptureSettings, name: str, texts: Iterable[Text]) -> dict[str, Any]:
    """All that decides the bytes of a capture, except for the texts. Each shard has a digest of these."""
    files = (
        {"files": [*texts.files], "text": texts.text, "text_pair": texts.text_pair} if isinstance(texts, Texts) else {}
    )
    return {
        "format": "clearhead-capture/1",
        "clearhead": __version__,
        "model": {
            "name": name,
            "fingerprint": fingerprint(plan.model),
            "config": plan.model.config.model_dump(mode="json"),
        },
        "settings": settings.model_dump(mode="json") | {"batch_tokens": BATCH_TOKENS},
        "data": files,
        "addresses": {
            str(site.address): {"axes": site.axes, "shape": [*site.shape], "rows": site.group} for site in plan.sites
        },
    }


def fingerprint(model: ModelBase) -> str:
    """SHA-256 of a model's config and weights."""
    found = hashlib.sha256(model.config.model_dump_json().encode())
    for name, tensor in sorted(model_tensors(model.network).items()):
        found.update(f"{name} {tensor.dtype} {[*tensor.shape]}".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def _begin(folder: Path, about: Mapping[str, Any]) -> tuple[dict[str, Entry], int, str | None]:
    """The complete files, the number of texts that they hold, and the digest of these.

    Makes the folder if it is not there. Raises UserError for a folder of something else.
    """
    try:
        there = {path.name for path in folder.iterdir()} if folder.exists() else set[str]()
    except OSError as error:
        raise UserError(f"{folder}: expected a folder, got {reason(error)}; give another --out") from None
    seen = {name for name in there if not name.startswith(".")}
    if seen and ABOUT not in seen:
        raise UserError(f"{folder}: expected a new folder or one of a capture, got {min(seen)}; give another --out")
    for name in there - seen:
        if name.endswith(".tmp"):
            (folder / name).unlink()
    if MANIFEST not in seen:
        entries: dict[str, Entry] = {}
        _keep(folder, ABOUT, _json(about), entries, 0)
        return entries, 0, None
    manifest = verify(folder, others=True, remedy="move this folder away")
    _require_same(folder, read_json(folder / ABOUT), about)
    if manifest.environment["threads"] != str(torch.get_num_threads()):
        _log.warning(
            "%s: captured with %s threads until now and with %s from here on: the last bits may differ",
            folder,
            manifest.environment["threads"],
            torch.get_num_threads(),
        )
    entries = dict(manifest.files)
    shards = [name for name in entries if name not in (ABOUT, INDEX)]
    digest = Captured(folder).facts(shards[-1])["read"] if shards else None
    return entries, manifest.step, digest


def _keep(folder: Path, name: str, content: bytes, entries: dict[str, Entry], done: int) -> None:
    """Writes a small file and lists it in the manifest."""
    replace_file(folder / name, content)
    entries[name] = seal(folder / name, "json")
    replace_file(folder / MANIFEST, render(done, entries))


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=2).encode() + b"\n"


def _require_same(folder: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raises UserError, which names the first difference, if a capture has another model or other settings."""
    for where, what in (("model", "fingerprint"), *(("settings", name) for name in here["settings"])):
        was, now = there.get(where, {}).get(what), here[where][what]
        if was != now:
            field = "the same model" if where == "model" else f"--{what.replace('_', '-')} {was}, as it began"
            got = "another" if where == "model" else now
            raise UserError(f"{folder}: expected {field}, got {got}; give another --out")
    if there.get("addresses") != here["addresses"]:
        was = ", ".join(there.get("addresses", {}))
        raise UserError(f"{folder}: expected --at {was[:200]}, as it began, got others; give another --out")


def _check_complete(folder: Path, texts: Iterable[Text], done: int, digest: str | None) -> None:
    """Raises UserError unless the data are those of a complete capture."""
    found, n = Digest(), 0
    for text in texts:
        found.add(text)
        n += 1
    if n != done or str(found) != digest:
        raise UserError(
            f"{folder}: expected the texts of this capture, {done:,} of them, got others; give another --out"
        )
