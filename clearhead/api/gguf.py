"""Opens GGUF files, whose metadata replace config.json and the tokenizer's files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.api.pretrained import Pretrained, Source, common_dtype, opened
from clearhead.checkpoints.families.gguf import content_of, described
from clearhead.checkpoints.weights import mapping
from clearhead.checkpoints.weights.gguf_file import GgufFile
from clearhead.checkpoints.weights.mapping import Rule
from clearhead.config import Head
from clearhead.planning.fit import require_weights
from clearhead.text.formats.gguf import open_metadata
from clearhead.text.tokenizers import Tokenizer


def read(path: Path, *, dtype: torch.dtype | None, head: Head | None) -> Pretrained:
    """The network of a file, with another head if one is given."""
    file = GgufFile.open(path)
    document, rules = described(content_of(file))
    _check_room(file, dtype)

    def tensors(dtype: torch.dtype | None) -> dict[str, Tensor]:
        return _renamed(file, rules, dtype or _most_common(file))

    return opened(Source(path, document, str(path), tensors, None), dtype=dtype, head=head)


def tokenizer_of(path: Path) -> Tokenizer | None:
    """The tokenizer of a file; None if it has none."""
    found = open_metadata(GgufFile.open(path).metadata, where=str(path))
    return None if found is None else Tokenizer(found.library, found.settings)


def _most_common(file: GgufFile) -> torch.dtype:
    return common_dtype((file.dtype_of(name), stored.count) for name, stored in file.tensors.items())


def _check_room(file: GgufFile, dtype: torch.dtype | None) -> None:
    """Raises OutOfMemory unless the weights fit: plain ones in their own type are mapped, all others allocated."""
    target = dtype or _most_common(file)
    mapped = {name for name, one in file.tensors.items() if one.is_plain and file.dtype_of(name) == target}
    allocated = sum(one.count for name, one in file.tensors.items() if name not in mapped) * target.itemsize
    size = sum(file.tensors[name].n_bytes for name in mapped)
    require_weights(file.path, torch.device("cpu"), allocated=allocated, mapped=size)


def _renamed(file: GgufFile, rules: Sequence[Rule], target: torch.dtype) -> dict[str, Tensor]:
    """The tensors under the family's names, one after the other, so that only one is in memory twice."""
    found: dict[str, Tensor] = {}
    for name in file.tensors:
        tensor = file.read(name, target)
        loaded = mapping.load(rules, {name: tensor}, where=str(file.path))
        made = {ours: _in_type(one, target) for ours, one in loaded.tensors.items()}
        if not any(one.data_ptr() == tensor.data_ptr() for one in made.values()):
            file.release(name)
        found |= made
    return found


def _in_type(tensor: Tensor, target: torch.dtype) -> Tensor:
    """The tensor in this type if the conversion is exact. Files keep vectors in float32."""
    if torch.promote_types(tensor.dtype, target) == target:
        return tensor.to(target)
    narrow: Any = tensor.to(target) if tensor.ndim < 2 else None
    return narrow if narrow is not None and torch.equal(narrow.to(tensor.dtype), tensor) else tensor
