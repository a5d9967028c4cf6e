"""Reads `pytorch_model.bin`, a pickle, by torch.load(weights_only=True): it builds tensors and runs no code."""

import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.checkpoints.weights.documents import AGAIN, Index, is_there, shown, size_of
from clearhead.errors import OutOfMemory, UserError, is_memory

if TYPE_CHECKING:
    from torch import Tensor

BIN = "pytorch_model.bin"
BIN_INDEX = "pytorch_model.bin.index.json"
SAFE = "try a checkpoint in safetensors"


def read(folder: Path) -> "dict[str, Tensor] | None":
    """The tensors of a folder's `.bin` files, mapped where they are archives; None if it has none.

    Raises UserError, which names the file, for anything else than tensors.
    """
    if is_there(folder / BIN):
        return read_file(folder / BIN)
    if not is_there(folder / BIN_INDEX):
        return None
    index, found = Index.read(folder / BIN_INDEX, suffix=".bin"), dict[str, "Tensor"]()
    for file in index.shards:
        tensors = read_file(folder / file)
        index.check(file, tensors)
        found |= tensors
    return found


def read_file(source: Path) -> "dict[str, Tensor]":
    """The tensors of one file. Those that share memory become apart."""
    import torch
    from torch import Tensor

    size_of(source)
    values = _load(source)
    if not isinstance(values, dict):
        raise UserError(f"{source}: expected a table of tensors, got {type(values).__name__}; {SAFE}")
    separate: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, value in values.items():
        where = f"{source}:{shown(str(name))}"
        if not isinstance(name, str):
            raise UserError(f"{where}: expected the name of a tensor, got {type(name).__name__}; {SAFE}")
        if not isinstance(value, Tensor):
            raise UserError(f"{where}: expected a tensor, got {type(value).__name__}; {SAFE}")
        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            raise UserError(f"{where}: expected a tensor of plain numbers, got another kind; {SAFE}")
        storage = value.untyped_storage().data_ptr()
        value = value.detach().contiguous()
        separate[name] = value.clone() if storage in storages else value
        storages.add(storage)
    return separate


def _load(source: Path) -> object:
    import torch

    try:
        archive = zipfile.is_zipfile(source)
        if archive and any(entry.compress_type != zipfile.ZIP_STORED for entry in zipfile.ZipFile(source).infolist()):
            raise UserError(f"{source}: expected an archive as torch writes it, got a compressed one; {SAFE}")
        return torch.load(source, map_location="cpu", weights_only=True, mmap=archive)
    except UserError:
        raise
    except Exception as error:  # a broken pickle, or one that does more than hold tensors, may raise anything
        if is_memory(error):
            raise OutOfMemory(f"{source}: expected enough memory to read it, got too little; {SAFE}") from None
        if named := re.search(r"GLOBAL ([\w.]+)", str(error)):
            raise UserError(f"{source}: expected tensors only, got a call of {named[1]}; {SAFE}") from None
        what = shown(str(error).split(". ")[0]) or type(error).__name__
        raise UserError(f"{source}: expected a file that torch wrote, got {what}; {AGAIN}") from None
