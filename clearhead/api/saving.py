"""Writes a model's folder: the files of `Model.save`."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.api import pretrained
from clearhead.api.card import card
from clearhead.api.folders import own_files
from clearhead.api.sidecars import PREPROCESSOR
from clearhead.model.assign import merged
from clearhead.model.linear import refuse_rounded
from clearhead.storage import checkpoints
from clearhead.storage.checkpoints import Checkpoint

if TYPE_CHECKING:
    from clearhead.api.model import Model

_log = logging.getLogger("clearhead")

SHARD_BYTES = 5_000_000_000
"""The largest file of weights that `save` writes."""


def save(model: "Model", folder: Path, *, shard_bytes: int = SHARD_BYTES) -> Path:
    """Writes a new folder as `Model.save` describes it."""
    refuse_rounded(model.network, "save")
    network = merged(model.network)
    exported = pretrained.export(network, model.settings(), prefer=model.family, shard_bytes=shard_bytes)
    if exported is None:
        _log.warning("%s: no other library has this architecture; saved for clearhead alone", folder)
    files = own_files(network, model.settings()) if exported is None else exported.files
    architecture = None if exported is None else exported.architecture
    beside = Checkpoint() if exported is None else model.sentences.files()
    text = card(
        model.config, folder.name, architecture=architecture, about=model.about, has_tokenizer=model.has_tokenizer
    )
    raw = {"README.md": text.encode(), **(model.tokenizer_files() if model.has_tokenizer else {}), **beside.raw}
    images = {PREPROCESSOR: model.reader.images.config.to_document()} if model.reader.images else {}
    json = {**files.json, **images, **beside.json}
    return checkpoints.write_folder(folder, Checkpoint({**files.tensors, **beside.tensors}, json, raw))
