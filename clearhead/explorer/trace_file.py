"""A recording as a folder: trace.json (clearhead-trace/1), one safetensors file a block, and overview.safetensors with
the attention weights as pixels. It appears whole or not at all, and is read strictly.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from clearhead.checkpoints.weights.documents import AGAIN, LIMIT, read_json, shown, size_of
from clearhead.config import LanguageHead
from clearhead.errors import UserError, reason
from clearhead.explorer.recording.manifest import FORMAT, TraceManifest
from clearhead.explorer.recording.recording import (
    LIKELIEST,
    Output,
    Recording,
    record,
    to_pixels,
)
from clearhead.model.meta import masks_of, ops_of
from clearhead.storage import checkpoints
from clearhead.storage.manifest import verify
from clearhead.storage.tensors import check_finite

__all__ = ["open", "record", "save"]

TRACE = "trace.json"
OVERVIEW = "overview.safetensors"


def save(recording: Recording, folder: Path) -> Path:
    """Writes a new folder, whole or not at all. Raises UserError if it exists."""
    blobs: dict[str, dict[str, Tensor]] = {OVERVIEW: {}}
    for address, value in recording.tensors.items():
        blob = blobs.setdefault(_blob(address), {})
        blob[address] = value
        if address in recording.closed:
            blob[f"{address}.closed"] = recording.closed[address].to(torch.uint8)
        if address.endswith(".weights") and not bool((value < 0).any()):
            pixels, largest = to_pixels(value)
            blobs[OVERVIEW] |= {f"{address}.u8": pixels, f"{address}.max": largest}
    if recording.output is not None:
        blobs[_blob("head")] |= {f"output.{name}": value for name, value in vars(recording.output).items()}
    files = {name: tensors for name, tensors in blobs.items() if tensors}
    return checkpoints.write_folder(folder, checkpoints.Checkpoint(files, {TRACE: recording.manifest.to_document()}))


def open(folder: Path) -> Recording:  # noqa: A001 - trace_file.open, as in gzip.open
    """Reads what `save` wrote and verifies every byte. Raises UserError, which names the file, if anything differs."""
    verify(folder)
    path = folder / TRACE
    try:
        manifest = TraceManifest.model_validate(read_json(path, limit=LIMIT))
    except ValidationError as error:
        first = error.errors()[0]
        field = shown(".".join(map(str, first["loc"]))) or "format"
        raise UserError(
            f"{path}:{field}: expected {FORMAT}, got a field where {shown(first['msg'])}; {AGAIN}"
        ) from None
    _check(manifest, path)
    expected: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {}
    for address, fact in manifest.tensors.items():
        blob = expected.setdefault(_blob(address), {})
        blob[address] = ("F32", fact.shape)
        if fact.closed:
            blob[f"{address}.closed"] = ("U8", fact.shape)
    is_language = isinstance(manifest.config.head, LanguageHead)
    if is_language:
        t, v = manifest.tensors["head.logits"].shape
        k = min(LIKELIEST, v)
        rows = {"ids": ("I32", (t, k)), "values": ("F32", (t, k)), "lse": ("F32", (t,))}
        expected[_blob("head")] |= {f"output.{name}": what for name, what in rows.items()}
    found: dict[str, Tensor] = {}
    for name, tensors in expected.items():
        found |= _read(folder / name, tensors)
    output = Output(found["output.ids"], found["output.values"], found["output.lse"]) if is_language else None
    closed = {a: found[f"{a}.closed"].bool() for a, fact in manifest.tensors.items() if fact.closed}
    return Recording(manifest, {address: found[address] for address in manifest.tensors}, closed, output)


def _blob(address: str) -> str:
    """The name of the file that holds an address: one for each block, one for the head, one for the rest."""
    block = re.match(r"(encoder|decoder)\.blocks\.\d+(?=\.)", address)
    part = block[0] if block else "head" if address.partition(".")[0] == "head" else "around"
    return f"{part}.safetensors"


def _check(manifest: TraceManifest, path: Path) -> None:
    """Raises UserError unless the ops are those of the config and the tensors are those of the ops."""
    for stack in manifest.config.stacks.values():
        if (stack.n_heads + stack.head_width) * stack.n_layers > 1 << 20 or stack.n_layers > len(manifest.ops):
            raise UserError(f"{path}:config: expected a network of the size of its ops, got a larger one; {AGAIN}")
    if manifest.ops != ops_of(manifest.config) or manifest.masks != masks_of(manifest.config):
        raise UserError(f"{path}:ops: expected those of the config, got others; try recording it again")
    made = {op.out for op in manifest.ops} | {"encoder.embed.pixels"}
    for address, fact in manifest.tensors.items():
        if address not in made or len(fact.shape) != len(fact.axes.split()):
            raise UserError(f"{path}:tensors.{shown(address)}: expected a tensor of an op, got another; {AGAIN}")
    stacks = list(manifest.config.stacks)
    needed = [f"{name}.embed.sum" for name in stacks]
    if isinstance(manifest.config.head, LanguageHead):
        needed.append("head.logits")
    for address in needed:
        if address not in manifest.tensors or len(manifest.tensors[address].shape) != 2:
            raise UserError(f"{path}:tensors: expected {address}, of two axes, got none; {AGAIN}")
    if list(manifest.tokens) != stacks:
        raise UserError(f"{path}:tokens: expected those of {', '.join(stacks)}, got others; {AGAIN}")


def _read(path: Path, expected: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, Tensor]:
    """The tensors of a file. Checks every type and shape in the header before it reads the data."""
    size_of(path)
    try:
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
            for name in sorted(names ^ expected.keys()):
                raise UserError(f"{path}:{shown(name)}: expected the tensors of {TRACE}, got a difference; {AGAIN}")
            for name, (dtype, shape) in expected.items():
                part = file.get_slice(name)
                got = part.get_dtype(), tuple(part.get_shape())
                if got != (dtype, shape):
                    raise UserError(f"{path}:{shown(name)}: expected {dtype} {shape}, got {got[0]} {got[1]}; {AGAIN}")
            tensors = {name: file.get_tensor(name) for name in expected}
    except UserError:
        raise
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError) as error:
        raise UserError(f"{path}: expected a whole safetensors file, got {reason(error)}; {AGAIN}") from error
    check_finite({shown(name): one for name, one in tensors.items()}, where=str(path), remedy=AGAIN)
    return tensors
