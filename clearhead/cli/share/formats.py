"""A model in the formats of other libraries and runtimes."""

import logging
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clearhead.api import Model, load
from clearhead.api.saving import SHARD_BYTES
from clearhead.checkpoints.families import HeadMap, family_for
from clearhead.cli.options import tell
from clearhead.errors import NumericError, UserError
from clearhead.storage.disk import temporary_name
from clearhead.storage.manifest import sync

ExportFormat = Literal["hf", "peft", "ctranslate2", "onnx", "gguf"]

NEEDS: dict[ExportFormat, tuple[str, ...]] = {
    "hf": (),
    "peft": (),
    "ctranslate2": ("ctranslate2", "transformers"),
    "onnx": ("onnx", "onnxscript"),
    "gguf": ("gguf",),
}
EXACT = 1e-3
"""The largest difference of exported logits from ours, as a share of the largest logit, for weights as they were."""
ROUNDED = 0.25
"""The largest difference for weights of fewer bits, beyond which rounding cannot explain it."""


@dataclass(frozen=True)
class ExportOptions:
    """Options of the command line besides the format."""

    dtype: str | None = None
    quantization: str | None = None
    shard_gb: float | None = None


@dataclass(frozen=True)
class Written:
    """A description of a written folder, and how to open it."""

    what: str
    hint: str


def check_options(to: ExportFormat, options: ExportOptions) -> None:
    """Raises UserError for an option that does not apply to the format."""
    if options.quantization is not None and to != "ctranslate2":
        raise UserError(f"--quantization: expected it with --to ctranslate2, got --to {to}; try --dtype")
    if options.quantization is not None and options.dtype is not None:
        raise UserError("--quantization and --dtype both name the type of the weights; give one")
    if options.shard_gb is not None and to != "hf":
        raise UserError(f"--shard-gb: expected it with --to hf, got --to {to}; leave it out")
    if options.shard_gb is not None and options.shard_gb <= 0:
        raise UserError(f"--shard-gb: expected more than 0, got {options.shard_gb:g}; try 5")
    if options.dtype is not None and to == "peft":
        raise UserError("--dtype: expected it with a whole model, got --to peft; leave it out")
    if options.dtype == "q8_0" and to != "gguf":
        raise UserError(f"--dtype: expected q8_0 with --to gguf, got --to {to}; try float16")
    if options.dtype == "bfloat16" and to == "onnx":
        raise UserError("--dtype: expected float32 or float16 with --to onnx, got bfloat16; try float16")


def to_hf(source: Path, place: Path, options: ExportOptions, name: str) -> Written:
    """The folder that the Hugging Face libraries open."""
    model = load(source, dtype=options.dtype)
    architecture = head_there(model, name).architecture
    tell(f"writing {place}")
    limit = SHARD_BYTES if options.shard_gb is None else int(options.shard_gb * 1e9)
    model.save(place, shard_bytes=limit)
    n = model.contract.max_length
    cuts = "" if n is None else f"; truncation=True cuts texts to {n} tokens, as training did"
    return Written(
        f"{architecture} for the Hugging Face libraries, {model.network.dtype_name}",
        f"transformers.{architecture}.from_pretrained({str(place)!r}){cuts}",
    )


def to_peft(source: Path, place: Path, _: ExportOptions, name: str) -> Written:
    """The folder of adapters that the library PEFT opens."""
    model = load(source)
    if model.base is None:
        raise UserError(f"{name}: expected a model with adapters, got one without; train it with --adapter.kind lora")
    tell(f"writing {place}")
    model.save(place, adapter=True)
    return Written(f"adapters of {model.base} for PEFT", f"peft.PeftModel.from_pretrained(base, {str(place)!r})")


def to_ctranslate2(source: Path, place: Path, options: ExportOptions, name: str) -> Written:
    """The folder that CTranslate2 opens."""
    from clearhead.cli.share.ctranslate2 import convert, reader, refuse

    model = load(source).merge()
    head_there(model, name)
    refuse(model, name)
    stored = model.network.dtype_name
    weights = options.quantization or options.dtype or stored
    with whole(place) as folder, quiet():
        gap = convert(model, folder, weights, name=name)
        exact = weights in ("float32", stored)
        judge(name, gap, exact=exact, remedy="for CTranslate2 cannot express it; try --to onnx")
    return Written(
        f"{reader(model)} for CTranslate2, {weights}",
        f"ctranslate2.{reader(model)}({str(place)!r}); it reads the tokens of tokenizer.json as strings",
    )


def to_onnx(source: Path, place: Path, options: ExportOptions, name: str) -> Written:
    """The folder with model.onnx."""
    from clearhead.cli.share.onnx import FILE, signature, write

    weights = options.dtype or "float32"
    model = load(source, dtype=weights).merge()
    with whole(place) as folder, quiet():
        gap = write(model, folder)
        judge(name, gap, exact=weights == "float32", remedy="try another --dtype")
    graph = str(place / FILE)
    return Written(f"ONNX graph, {weights}", f"onnxruntime.InferenceSession({graph!r}): {signature(model)}")


def to_gguf(source: Path, place: Path, options: ExportOptions, name: str) -> Written:
    """The folder with one GGUF file."""
    from clearhead.cli.share.gguf import KINDS, write

    model = load(source).merge()
    kind = options.dtype or model.network.dtype_name
    exact = kind in ("float32", model.network.dtype_name)
    file = f"{Path(name).resolve().stem}-{KINDS[kind]}.gguf"
    with whole(place) as folder, quiet():
        gap = write(model, folder / file, kind, name=name)
        judge(name, gap, exact=exact, remedy="try another --dtype")
    return Written(f"GGUF, {KINDS[kind]}", f"clearhead.load({str(place / file)!r}), or a program that reads GGUF")


WRITERS = {"hf": to_hf, "peft": to_peft, "ctranslate2": to_ctranslate2, "onnx": to_onnx, "gguf": to_gguf}


# --- what they have in common --------------------------------------------------------------------------------------


def head_there(model: Model, name: str) -> HeadMap:
    """The other library's class for this network. Raises UserError if there is none."""
    found = family_for(model.config, model.family)
    if found is None:
        raise UserError(
            f"{name}: expected an architecture that other libraries have, got one of our own;"
            " try --to onnx, or use the folder with clearhead"
        )
    return found[1]


def judge(name: str, gap: float, *, exact: bool, remedy: str) -> None:
    """Reports the difference of the export from the model. Raises NumericError if it is too large."""
    if not gap <= (EXACT if exact else ROUNDED):
        raise NumericError(
            f"{name}: expected an export that computes what the model does, got one whose output differs by"
            f" {gap:.1%} of the largest value; nothing written, {remedy}"
        )
    tell(f"checked on a random input: its output differs from clearhead's by {gap:.0e} of the largest value")


def check_free(place: Path) -> None:
    """Raises UserError if there is a file or folder."""
    if os.path.lexists(place):
        raise UserError(f"{place}: expected nothing there, got a file or folder; give another --out")


@contextmanager
def whole(place: Path) -> Iterator[Path]:
    """A temporary folder that becomes `place` when the block ends, and is removed if it fails."""
    tell(f"writing {place}")
    place.parent.mkdir(parents=True, exist_ok=True)
    folder = place.parent / temporary_name(place)
    folder.mkdir()
    try:
        yield folder
        for path in [*folder.rglob("*"), folder]:
            sync(path)
        check_free(place)
        os.rename(folder, place)  # noqa: PTH104 - one system call
        sync(place.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def quiet() -> Iterator[None]:
    """Hides warnings and log lines of other libraries, on which no user can act."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
