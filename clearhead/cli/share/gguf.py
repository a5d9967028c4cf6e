"""A language model as a GGUF file, which llama.cpp and the programs made of it open."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.analysis import comparison
from clearhead.analysis.passes import inference
from clearhead.api import Model
from clearhead.api.pretrained import CONTRACT, read_gguf
from clearhead.checkpoints.families import families, family_of
from clearhead.checkpoints.families.family import canonical
from clearhead.checkpoints.families.gguf import Written, described, known, written
from clearhead.checkpoints.families.gguf_angles import Content
from clearhead.checkpoints.weights import mapping
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.gguf import AT_ONCE, library
from clearhead.cli.options import tell
from clearhead.errors import UserError
from clearhead.storage.tensors import model_tensors
from clearhead.text.formats.gguf import needs_whole, to_metadata

KINDS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "q8_0": "Q8_0"}
FILE_TYPES = {"float32": 0, "float16": 1, "q8_0": 7, "bfloat16": 32}
"""Types of the weights, by the format's numbers."""
PRECISE = ("position_embd",)
"""Matrices that programs expect in float32, like every vector."""


def write(model: Model, path: Path, kind: str, *, name: str) -> float:
    """Writes the file. Returns the largest difference of its logits from the model's, as a share of the largest.

    Raises UserError for a model that the format cannot hold.
    """
    made, tensors = described_model(model, name)
    metadata = {
        "general.name": Path(name).name,
        "general.file_type": FILE_TYPES[kind],
        "general.quantization_version": 2,
    }
    metadata[CONTRACT] = json.dumps(model.contract.model_dump(mode="json", exclude_none=True))
    metadata |= made.metadata | _tokenizer(model, len(tensors["token_embd.weight"]), name)
    metadata[f"{made.name}.vocab_size"] = len(tensors["token_embd.weight"])
    put(path, made.name, metadata, tensors, kind)
    return difference(model, path)


def described_model(model: Model, name: str) -> tuple[Written, dict[str, Tensor]]:
    """The metadata of a model, and its tensors by the format's names."""
    if not model.config.continues_texts:
        raise UserError(f"{name}: expected a decoder that writes texts, got another model; try --to hf")
    names, lacking = [model.family] if model.family in known() else known(), ""
    for family in families():
        found = family.write(model.config) if family.model_type in names else None
        if found is None:
            continue
        document, head = found
        theirs = mapping.save(family.table(model.config, head), model_tensors(model.network))
        made = written({**family.fallback, **document})
        tensors = mapping.save(made.rules, theirs)
        tensors |= {key: torch.tensor(values) for key, values in made.vectors.items()}
        lost = _lost(made, tensors, model)
        if lost is None:
            return made, tensors
        field = family.map_of(head).field_of(lost.split(".")) or lost
        lacking = lacking or f"{family.model_type} with {field}={short(document.get(field))}"
    got = lacking or "another"
    raise UserError(f"{name}: expected a model of {', '.join(known())} with what GGUF can hold, got {got}; try --to hf")


def _lost(made: Written, tensors: Mapping[str, Tensor], model: Model) -> str | None:
    """The path of the first setting of the network that the metadata do not say; None if they say all."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    try:
        document, _ = described(Content("gguf", made.metadata, shapes, made.vectors.get))
        config, _ = family_of(document, where="gguf").read(document, where="gguf")
    except UserError:
        return "model_type"
    here, there = (canonical(one).model_dump(mode="json") for one in (model.config, config))
    return None if here == there else _difference(here, there)


def _difference(here: Any, there: Any, path: str = "") -> str:
    """The path of the first value that differs."""
    if isinstance(here, dict) and isinstance(there, dict):
        for name, value in here.items():
            if value != there.get(name):
                return _difference(value, there.get(name), f"{path}.{name}" if path else name)
    return path


def _tokenizer(model: Model, n_rows: int, name: str) -> dict[str, Any]:
    """The metadata of the tokenizer and of the tokens that end a text."""
    ends = model.settings().end_ids
    found: dict[str, Any] = {}
    if model.has_tokenizer:
        found = to_metadata(model.tokenizer.library, model.tokenizer.settings, n_rows=n_rows)
        if needs_whole(found):
            tell(
                f"note: {name} splits texts by rules that GGUF has no name for; only clearhead reads them from the file"
            )
    known_end = found.get("tokenizer.ggml.eos_token_id")
    ordered = sorted(ends, key=lambda end: end != known_end)
    for key, end in zip(("eos_token_id", "eot_token_id"), ordered, strict=False):
        found[f"tokenizer.ggml.{key}"] = end
    if len(ends) > 2:
        tell(f"note: GGUF keeps two tokens that end a text; left out {', '.join(map(str, ordered[2:]))}")
    return found


# --- the file ------------------------------------------------------------------------------------------------------


def put(path: Path, architecture: str, metadata: Mapping[str, Any], tensors: Mapping[str, Tensor], kind: str) -> None:
    """Writes metadata and tensors. The tensors wait in a temporary file, so that memory need not hold them twice."""
    lib = library("--to gguf")
    writer: Any = lib.GGUFWriter(path, architecture, use_temp_file=True)
    adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    for key, value in metadata.items():
        if key != "general.architecture":
            adders.get(type(value), writer.add_array)(key, value)
    for name, tensor in tensors.items():
        stored = _type(lib, name, tensor, kind)
        writer.add_tensor(name, _stored(lib, tensor, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _type(lib: Any, name: str, tensor: Tensor, kind: str) -> Any:
    """The type of a tensor in the file: rows that do not divide into blocks become float16, and vectors float32."""
    types = lib.GGMLQuantizationType
    if tensor.ndim < 2 or name.startswith(PRECISE):
        return types.F32
    found = types[KINDS[kind]]
    return found if tensor.shape[-1] % lib.GGML_QUANT_SIZES[found][0] == 0 else types.F16


def _stored(lib: Any, tensor: Tensor, kind: Any) -> Any:
    """The bytes of a tensor, quantized in parts."""
    import numpy as np

    rows = tensor.reshape(-1, tensor.shape[-1])
    step = max(1, AT_ONCE // tensor.shape[-1])
    parts = [lib.quants.quantize(rows[i : i + step].float().numpy(), kind) for i in range(0, len(rows), step)]
    return np.concatenate(parts).reshape(*tensor.shape[:-1], -1)


def difference(model: Model, path: Path) -> float:
    """max |file - ours| / max |ours| of logits on a random batch. The model becomes float32."""
    found = read_gguf(path, dtype=torch.float32, head=None)
    generator = torch.Generator().manual_seed(0)
    length = min(9, model.config.output.max_length or 9)
    _, tokens = comparison.sample(model.network, lengths=[length, max(1, length // 2)], generator=generator)
    with inference(model.network.float()):
        ours = model.network(*tokens)
    with inference(found.network):
        theirs = found.network(*tokens)
    return comparison.relative(ours, theirs)
