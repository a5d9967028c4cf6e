"""The files of a saved model: the whole model, or its adapters."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.api import adapter_files as peft
from clearhead.api import pretrained
from clearhead.api.adapter_parts import fingerprint
from clearhead.api.card import card
from clearhead.api.folders import own_files
from clearhead.api.sidecars import PREPROCESSOR
from clearhead.checkpoints.weights.elsewhere import ADAPTER
from clearhead.model.assign import merged
from clearhead.model.linear import refuse_rounded
from clearhead.storage.checkpoints import Checkpoint

if TYPE_CHECKING:
    from clearhead.api.model import Model

_log = logging.getLogger("clearhead")

SHARD_BYTES = 5_000_000_000
"""The largest file of weights that `save` writes."""


def adapter_files(model: "Model") -> Checkpoint:
    """The adapters in the form of PEFT, with the tokenizer."""
    files = peft.export(model.network, family=model.family, base=model.base)
    raw = model.tokenizer_files() if model.has_tokenizer else {}
    trained = [name for name, one in model.network.named_parameters() if one.requires_grad]
    about = {"base_bits": files.json[ADAPTER].get(peft.BASE_BITS), "base_sha256": fingerprint(model.network, trained)}
    kind = str(next(model.network.parameters()).dtype).removeprefix("torch.")
    under = model.contract.model_copy(update={**about, "base_dtype": kind})
    return Checkpoint(files.tensors, {**files.json, **under.files()}, raw)


def whole_files(model: "Model", folder: Path, *, shard_bytes: int) -> Checkpoint:
    """The weights, with the adapters in them, in the form of other libraries, else in our own."""
    refuse_rounded(model.network, "save")
    network, settings, has_tokenizer = merged(model.network), model.settings(), model.has_tokenizer
    exported = pretrained.export(network, settings, prefer=model.family, shard_bytes=shard_bytes)
    if exported is None:
        _log.warning("%s: no other library has this architecture; saved in clearhead's own format", folder)
    files = own_files(network, settings) if exported is None else exported.files
    architecture = None if exported is None else exported.architecture
    beside = model.sentences.own_files() if exported is None else model.sentences.files()
    text = card(model.config, folder.name, architecture=architecture, about=model.about, has_tokenizer=has_tokenizer)
    raw = {"README.md": text.encode(), **(model.tokenizer_files() if has_tokenizer else {}), **beside.raw}
    processor = model.reader.processor
    processing = {PREPROCESSOR: processor.config.to_document()} if processor else {}
    return Checkpoint(
        {**files.tensors, **beside.tensors}, {**files.json, **processing, **beside.json, **model.contract.files()}, raw
    )
