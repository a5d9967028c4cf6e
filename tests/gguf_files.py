"""GGUF files for tests, written by the format's own library from plain arrays: nothing of clearhead takes part."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.later import later

gguf: Any = later("gguf")
KINDS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16", "F32", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
# Where a block of these types, which the library cannot make, has its scales in float16.
SCALES = {"Q2_K": (80, 84), "Q3_K": (108, 110), "Q4_K": (0, 4), "Q5_K": (0, 4), "Q6_K": (208, 210)}
SIZES = {
    "context_length": 64,
    "embedding_length": 256,
    "block_count": 2,
    "feed_forward_length": 512,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
}


def packed(shape: tuple[int, int], kind: str, seed: int) -> Any:
    """A random matrix in a type."""
    random = np.random.default_rng(seed)
    type_ = gguf.GGMLQuantizationType[kind]
    if kind not in SCALES:
        return gguf.quants.quantize((random.standard_normal(shape) / 8).astype(np.float32), type_)
    size = gguf.GGML_QUANT_SIZES[type_][1]
    blocks = random.integers(0, 256, (shape[0], shape[1] // 256, size), dtype=np.uint8)
    start, end = SCALES[kind]
    scales = (random.random((*blocks.shape[:2], (end - start) // 2)) / 1000).astype(np.float16)
    blocks[..., start:end] = scales.view(np.uint8)
    return blocks.reshape(shape[0], -1)


def plain(array: Any, kind: str) -> Tensor:
    """The numbers of such a matrix, by the library."""
    return torch.from_numpy(np.array(gguf.quants.dequantize(array, gguf.GGMLQuantizationType[kind])))


def write(
    path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, tuple[Any, str]], *, name: str, each: int = 0
) -> Path:
    """A file of the architecture `name`, or files with so many tensors `each`, whose names have their numbers."""
    writer = gguf.GGUFWriter(path, name, split_max_tensors=each)
    adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    for key, value in metadata.items():
        adders.get(type(value), writer.add_array)(key, value)
    for tensor, (array, kind) in tensors.items():
        writer.add_tensor(tensor, array, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def interleaved(weight: Tensor, heads: int) -> Tensor:
    """Queries or keys with the rows of each head in the order of the format's first architecture."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def straight(weight: Tensor, heads: int) -> Tensor:
    """The inverse of `interleaved`."""
    return weight.reshape(heads, -1, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
