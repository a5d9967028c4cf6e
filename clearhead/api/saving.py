"""The files of a saved model, with its model card, or of its adapters."""

import logging
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from clearhead.api import adapter_files as peft
from clearhead.api import pretrained
from clearhead.api.adapters import fingerprint
from clearhead.api.base import ModelBase
from clearhead.api.folders import PREPROCESSOR, own_files
from clearhead.checkpoints.weights.documents import ADAPTER
from clearhead.config import ClassificationHead, Continuous, ModelConfig, StackConfig, VectorHead
from clearhead.generation.settings import searching
from clearhead.model.assign import merged
from clearhead.model.linear import refuse_rounded
from clearhead.model.summary import summarize
from clearhead.storage.checkpoints import Checkpoint

_log = logging.getLogger("clearhead")

SHARD_BYTES = 5_000_000_000
"""The largest file of weights that `save` writes."""


def adapter_files(model: ModelBase) -> Checkpoint:
    """The adapters in the form of PEFT, with the tokenizer."""
    files = peft.export(model.network, family=model.family, base=model.base)
    raw = model.tokenizer_files() if model.has_tokenizer else {}
    trained = [name for name, one in model.network.named_parameters() if one.requires_grad]
    about = {"base_bits": files.json[ADAPTER].get(peft.BASE_BITS), "base_sha256": fingerprint(model.network, trained)}
    under = model.contract.model_copy(update={**about, "base_dtype": model.network.dtype_name})
    return Checkpoint(files.tensors, {**files.json, **under.files()}, raw)


def whole_files(model: ModelBase, folder: Path, *, shard_bytes: int) -> Checkpoint:
    """The weights with merged adapters, in the form of other libraries if possible, else in clearhead's."""
    refuse_rounded(model.network, "save")
    network, has_tokenizer = merged(model.network), model.has_tokenizer
    # What a task predicts by, other libraries take from these settings alone.
    searches = model.is_encoder_decoder and model.contract.task is not None
    settings = model.settings(searching(model.generation, {}) if searches else None)
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


def card(
    config: ModelConfig, name: str, *, architecture: str | None, about: Mapping[str, JsonValue], has_tokenizer: bool
) -> str:
    """The text. `architecture` is the class as which other libraries open the model; None if they have none."""
    library = "transformers" if architecture else "clearhead"
    facts = {"Architecture": architecture or "clearhead's own", "Parameters": f"{summarize(config).parameters:,}"}
    facts |= {title.capitalize(): described(stack) for title, stack in config.stacks.items()}
    lines = ["---", f"library_name: {library}", "tags:", "- clearhead", "---", "", f"# {name}", "", *table(facts)]
    if about:
        lines += ["", "## Training", "", *table(about)]
    lines += ["", "## Use", "", *code("import clearhead", "", 'model = clearhead.load("FOLDER")', use(config))]
    if architecture:
        imports = f"from transformers import {architecture}" + (", AutoTokenizer" if has_tokenizer else "")
        opened = [f'model = {architecture}.from_pretrained("FOLDER")']
        if has_tokenizer:
            opened += ['tokenizer = AutoTokenizer.from_pretrained("FOLDER")']
            opened += ['inputs = tokenizer("…", truncation=True, return_tensors="pt")  # Cuts as training did.']
        lines += ["", "or", "", *code(imports, "", *opened)]
    return "\n".join(lines) + "\n"


def table(rows: Mapping[str, JsonValue]) -> list[str]:
    """A table of names and values, numbers with four digits."""
    shown = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in rows.items()}
    return ["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in shown.items())]


def code(*lines: str) -> list[str]:
    """A block of Python."""
    return ["```python", *lines, "```"]


def described(stack: StackConfig) -> str:
    """One line about a stack."""
    reads = stack.input
    what = (
        f"{reads.medium}s of {' x '.join(map(str, reads.shape)) if reads.is_fixed else 'any length'}"
        if isinstance(reads, Continuous)
        else f"vocabulary of {reads.vocab_size:,}"
    )
    return f"{stack.n_layers} layers of width {stack.d_model}, {stack.n_heads} heads, {what}"


def use(config: ModelConfig) -> str:
    """One line that uses such a model."""
    if isinstance(config.head, ClassificationHead):
        return 'model.classify(["…"])'
    if config.decoder is None or isinstance(config.head, VectorHead):
        return 'model.embed(["…"])'
    return 'model.generate("…")' if config.encoder is None else 'model.translate(["…"])'
