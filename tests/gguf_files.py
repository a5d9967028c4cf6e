"""GGUF files for tests, written by the format's own library from plain arrays: nothing of clearhead takes part."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from clearhead.api import Model
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

FIELDS = {
    "vocab_size": "vocab_size",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "norm_epsilon",
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
FIELDS_2019 = {
    "context_length": "n_positions",
    "embedding_length": "n_embd",
    "block_count": "n_layer",
    "attention.head_count": "n_head",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
}
"""Metadata of a file -> fields of the reference library, and those of GPT-2."""


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


def unlike(arch: str, name: str, tensor: Tensor, document: Mapping[str, Any]) -> Tensor:
    """A tensor of the reference library as the format stores it."""
    heads = document.get("num_attention_heads", 1)
    if arch in ("llama", "arcee", "smollm3", "granite") and (part := re.search(r"\.([qk])_proj\.", name)):
        return interleaved(tensor, heads if part[1] == "q" else document.get("num_key_value_heads", heads))
    if arch.startswith("gemma") and name.endswith("norm.weight"):
        return tensor + 1
    return tensor.T if arch == "gpt2" and re.search(r"\.c_\w+\.weight$", name) else tensor


def convert(folder: Path, path: Path, arch: str, said: Mapping[str, Any], *, kind: str = "F32", more: Any = ()) -> Path:
    """A folder of the reference library as a file, with metadata and tensors beside its own.

    Matrices have this type where their rows divide into its blocks, and vectors are float32.
    """
    document = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    kinds = gguf.GGMLQuantizationType
    n_layers = document.get("num_hidden_layers", document.get("n_layer"))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[arch.upper()], n_layers)
    stored: dict[str, tuple[Any, str]] = dict(more)
    for name, tensor in tensors.items():
        matrix = unlike(arch, name, tensor.float(), document).contiguous().numpy()
        its = kind if matrix.ndim > 1 and matrix.shape[-1] % gguf.GGML_QUANT_SIZES[kinds[kind]][0] == 0 else "F32"
        its = "F32" if "wpe" in name else its
        stored[names.get_name(name, try_suffixes=(".weight", ".bias"))] = gguf.quants.quantize(matrix, kinds[its]), its
    sizes = {
        key: document[field]
        for key, field in (FIELDS_2019 if arch == "gpt2" else FIELDS).items()
        if document.get(field) is not None
    }
    if arch == "gpt2":
        sizes |= {"feed_forward_length": 4 * document["n_embd"]}
    else:
        heads, rope = document["num_attention_heads"], document["rope_parameters"]
        width = document.get("head_dim") or document["hidden_size"] // heads
        theta = rope.get("full_attention", rope)["rope_theta"]
        sizes |= {"attention.key_length": width, "attention.value_length": width, "rope.dimension_count": width}
        sizes |= {"rope.freq_base": float(theta)}
    metadata = {f"{arch}.{key}": value for key, value in {**sizes, **said}.items() if not key.startswith("tokenizer.")}
    metadata |= {key: value for key, value in said.items() if key.startswith("tokenizer.")}
    ends = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "padding_token_id": "pad_token_id"}
    for key, field in ends.items():
        if isinstance(document.get(field), int):
            metadata.setdefault(f"tokenizer.ggml.{key}", document[field])
    return write(path, metadata, stored, name=arch)


def of_ours(model: Model, path: Path, *, kind: str) -> Path:
    """A model of a Llama's architecture as a file, with its whole tokenizer."""
    with TemporaryDirectory() as folder:
        saved = model.save(Path(folder, "model"))
        said = {"tokenizer.ggml.model": "no_vocab", "tokenizer.huggingface.json": model.tokenizer.library.to_str()}
        return convert(saved, path, "llama", said, kind=kind)
