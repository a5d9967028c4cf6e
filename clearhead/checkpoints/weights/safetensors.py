"""Weight files: a folder <-> tensors by name. Tensors are mapped, not copied, so memory fills as they are used."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from clearhead.checkpoints.weights import legacy
from clearhead.checkpoints.weights.documents import (
    AGAIN,
    INDEX,
    MODEL,
    Index,
    is_there,
    refuse_other_form,
    shown,
    size_of,
)
from clearhead.errors import UserError, reason
from clearhead.json_text import JsonObject

DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL")
"""The types that are read, by the format's names."""
FLOAT8 = ("F8_E4M3", "F8_E5M2")
"""Types of quantized numbers, which need their scales."""


def read(folder: Path, *, quantized: bool = False) -> dict[str, Tensor]:
    """The tensors of a folder: `model.safetensors`, or the shards of its index, or a legacy `.bin`.

    A write into a tensor changes neither the file nor what another reader sees. Raises UserError, which names the file.
    """
    if is_there(folder / MODEL):
        return _read_file(folder / MODEL, quantized)
    if is_there(folder / INDEX):
        return _read_shards(Index.read(folder / INDEX, suffix=".safetensors"), quantized)
    if (found := legacy.read(folder)) is not None:
        return found
    refuse_other_form(folder)
    raise UserError(f"{folder}: expected {MODEL} or {INDEX}, got neither; try a folder that a model was saved in")


def with_metadata(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of one file, and the texts that describe it. Raises UserError, which names the file."""
    tensors = _read_file(path, quantized=False)
    with _guarded(path), safe_open(path, framework="pt") as file:
        return tensors, dict(file.metadata() or {})


def shards(
    tensors: Mapping[str, Tensor], *, limit_bytes: int
) -> tuple[dict[str, dict[str, Tensor]], JsonObject | None]:
    """The tensors of each file, and the index; one file and no index if all tensors fit in `limit_bytes`.

    A tensor that is larger by itself gets a file of its own.
    """
    from huggingface_hub import split_state_dict_into_shards_factory

    split = split_state_dict_into_shards_factory(
        dict(tensors),
        get_storage_size=lambda tensor: tensor.nbytes,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=limit_bytes,
    )
    files = {file: {name: tensors[name] for name in names} for file, names in split.filename_to_tensors.items()}
    if not split.is_sharded:
        return files, None
    places: JsonObject = dict(sorted(split.tensor_to_filename.items()))
    return files, {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": places}


def _read_shards(index: Index, quantized: bool) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for file in index.shards:
        tensors = _read_file(index.path.parent / file, quantized)
        index.check(file, tensors)
        found |= tensors
    return found


def _read_file(path: Path, quantized: bool) -> dict[str, Tensor]:
    size_of(path)
    known = (*DTYPES, *FLOAT8) if quantized else DTYPES
    # The library maps the file privately, so that a write copies the page it touches.
    with _guarded(path), safe_open(path, framework="pt") as file:
        names = list(file.keys())
        for name in names:
            if (dtype := file.get_slice(name).get_dtype()) not in known:
                raise UserError(
                    f"{path}:{shown(name)}: expected one of {', '.join(known)}, got {shown(dtype)};"
                    " try the checkpoint that is not quantised"
                )
        return {name: file.get_tensor(name) for name in names}


@contextmanager
def _guarded(path: Path) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError) as error:
        raise UserError(f"{path}: expected a whole safetensors file, got {reason(error)}; {AGAIN}") from error
