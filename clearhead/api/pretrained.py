"""Reads and writes folders of the Hugging Face libraries, and reads GGUF files."""

import logging
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from clearhead.api.folders import CONFIG, sized, weights_files
from clearhead.checkpoints.families import Family, family_for, family_of
from clearhead.checkpoints.families.family import other_heads, respelled
from clearhead.checkpoints.families.generation import SPECIAL, read_generation, write_generation
from clearhead.checkpoints.families.gguf import content_of, described
from clearhead.checkpoints.families.unknown import listed
from clearhead.checkpoints.weights import mapping, safetensors
from clearhead.checkpoints.weights.dequantize import count, dequantized
from clearhead.checkpoints.weights.documents import AGAIN, INDEX, read_json, shown
from clearhead.checkpoints.weights.fields import ANOTHER
from clearhead.checkpoints.weights.gguf import GgufFile
from clearhead.checkpoints.weights.mapping import Rule
from clearhead.checkpoints.weights.quantization import Method, method_of
from clearhead.config import Head
from clearhead.errors import OutOfMemory, UserError, is_memory
from clearhead.json_text import JsonObject, parse
from clearhead.machine.memory import gigabytes, require_weights
from clearhead.model import Transformer
from clearhead.model.assign import assemble, new_head
from clearhead.model.experts import NEVER_NARROWED
from clearhead.recipe.contract import Contract
from clearhead.recipe.generation import GenerationConfig
from clearhead.storage import checkpoints
from clearhead.storage.manifest import MANIFEST, verify
from clearhead.storage.tensors import check_finite, model_tensors
from clearhead.text.formats.gguf import open_metadata
from clearhead.text.tokenizers import Tokenizer

_log = logging.getLogger("clearhead")

GENERATION = "generation_config.json"
CHANGED = f"try the folder it was copied from; if the change is yours, delete {MANIFEST} beside it"
"""The remedy if a file of a saved model has changed."""


@dataclass(frozen=True)
class Source:
    """Config and weights of another library, in whatever files they are."""

    place: Path
    """The folder or file."""
    document: Mapping[str, Any]
    """The content of config.json, or of the file that replaces it."""
    where: str
    """Its name in messages."""
    tensors: Callable[[torch.dtype | None], dict[str, Tensor]]
    """Reads the tensors. The type is that of quantized ones."""
    generation: Mapping[str, Any] | None
    """The content of generation_config.json."""


@dataclass(frozen=True)
class Pretrained:
    """The content of a folder of another library."""

    network: Transformer
    family: Family
    generation: GenerationConfig


def read(folder: Path, document: Mapping[str, Any], *, dtype: torch.dtype | None, head: Head | None) -> Pretrained:
    """The network of a folder whose config.json is `document`, with another head if one is given."""
    if (folder / MANIFEST).exists():
        verify(folder, others=True, remedy=CHANGED)
    generation = read_json(folder / GENERATION) if (folder / GENERATION).is_file() else None
    where = str(folder / CONFIG)
    packings = family_of(document, where=where).packings
    method = method_of(document, where=where, but=packings)
    tensors = partial(read_tensors, folder, method, _stated(document), packed=bool(packings))
    return opened(Source(folder, document, where, tensors, generation), dtype=dtype, head=head)


def opened(source: Source, *, dtype: torch.dtype | None, head: Head | None) -> Pretrained:
    """The network of a source, with another head if one is given."""
    document, where, place = source.document, source.where, source.place
    family = family_of(document, where=where)
    _, head_map = family.read(document, where=where)
    if unknown := family.unknown(document, where=where):
        names = shown(", ".join(unknown))
        _log.warning("%s: %s: %s", where, family.of_unread, names)
    theirs = respelled(family, head_map, document, source.tensors(dtype), where=where)
    config = sized(place, family.read(document, where=where, tensors=theirs)[0])
    rules = family.table(config, head_map)
    rules += other_heads(family, head_map, document, theirs, rules, where=where)
    loaded = named_as_ours(theirs, rules, where=str(place))
    target = dtype or common_dtype((tensor.dtype, tensor.numel()) for tensor in loaded.tensors.values())
    tensors = converted(loaded.tensors, target, where=place)
    stored = {t.dtype for n, t in loaded.tensors.items() if t.is_floating_point() and not n.endswith(NEVER_NARROWED)}
    if dtype is None and len(stored) > 1:
        _log.warning("%s: of several types of number, all become the most common one; dtype names another", place)
    if head is not None:
        config, tensors = new_head(config, tensors, family.fitting(head))

    def called(name: str) -> str:
        return shown(loaded.origin.get(name) or mapping.origins(rules, [name]).get(name, name))

    network = assemble(config, tensors, where=str(place), called=called)
    settings = read_generation(document, source.generation, encoder_decoder=config.is_encoder_decoder, where=str(place))
    padding = family.map_of(head_map).values(document, where=where)["pad_token_id"] if family.uncounted_padding else -1
    if settings.start_id == padding:
        expected = f"expected another token than pad_token_id, to which its library gives no position, got {padding}"
        raise UserError(f"{where}:decoder_start_token_id: {expected}; {ANOTHER}")
    return Pretrained(network, family, settings)


def read_tensors(
    folder: Path,
    method: Method | None,
    stated: torch.dtype,
    dtype: torch.dtype | None,
    *,
    packed: bool = False,
) -> dict[str, Tensor]:
    """The folder's tensors, the quantized ones dequantized.

    `packed`: the family's own rules read packed numbers.
    """
    theirs = safetensors.read(folder, quantized=packed or method is not None)
    if method is not None:
        target = dtype or stated
        require_weights(folder, torch.device("cpu"), allocated=count(theirs, method) * target.itemsize)
        theirs = dequantized(theirs, method, target, where=str(folder))
    return theirs


def _stated(document: Mapping[str, Any]) -> torch.dtype:
    """The type of the weights that a config states, by default half precision."""
    name = str(document.get("dtype") or document.get("torch_dtype")).removeprefix("torch.")
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    return known.get(name, torch.float16)


def named_as_ours(theirs: Mapping[str, Tensor], rules: Sequence[Rule], *, where: str) -> mapping.Loaded:
    """The tensors under our names, all finite. A warning names those left out."""
    loaded = mapping.load(rules, theirs, where=where)
    check_finite({shown(loaded.origin[n]): t for n, t in loaded.tensors.items()}, where=where, remedy=AGAIN)
    for because in dict.fromkeys(loaded.left_out.values()):
        names = [name for name, why in loaded.left_out.items() if why == because]
        _log.warning("%s: left out %s: %s", where, listed(names, whole=True), because)
    return loaded


def common_dtype(stored: Iterable[tuple[torch.dtype, int]]) -> torch.dtype:
    """The floating-point type of most of the numbers, from the type and size of each tensor."""
    sizes: Counter[torch.dtype] = Counter()
    for dtype, n in stored:
        sizes[dtype] += n if dtype.is_floating_point else 0
    return sizes.most_common(1)[0][0] if sizes else torch.float32


def converted(tensors: Mapping[str, Tensor], dtype: torch.dtype, *, where: object) -> dict[str, Tensor]:
    """The tensors with floating-point ones in this dtype. Raises OutOfMemory if the converted ones do not fit."""
    changing = (t.numel() for t in tensors.values() if t.is_floating_point() and t.dtype != dtype)
    require_weights(where, torch.device("cpu"), allocated=sum(changing) * dtype.itemsize)

    def in_type(name: str, tensor: Tensor) -> Tensor:
        exact = name.endswith(NEVER_NARROWED)
        return tensor.to(torch.promote_types(tensor.dtype, dtype) if exact else dtype)

    return {name: in_type(name, t) if t.is_floating_point() else t for name, t in tensors.items()}


@dataclass(frozen=True)
class Exported:
    """A model in the form of other libraries."""

    files: checkpoints.Checkpoint
    architecture: str
    """The class of theirs that opens it."""


def export(
    network: Transformer, generation: GenerationConfig, *, prefer: str | None, shard_bytes: int
) -> Exported | None:
    """Config, generation settings and weights in the form of other libraries; None if none has this architecture."""
    config = network.config
    match = family_for(config, prefer)
    if match is None:
        return None
    family, head, document = match
    tensors = mapping.save(family.table(config, head), model_tensors(network))
    shards, index = safetensors.shards(tensors, limit_bytes=shard_bytes)
    settings = write_generation(generation, encoder_decoder=config.is_encoder_decoder)
    ids = {name: settings[name] for name in settings.keys() & SPECIAL}
    json: dict[str, JsonObject] = {CONFIG: {**family.fallback, **ids, **document, "dtype": network.dtype_name}}
    if config.decoder is not None:
        json[GENERATION] = settings
    if index is not None:
        json[INDEX] = index
    return Exported(checkpoints.Checkpoint(tensors=shards, json=json), head.architecture)


# --- GGUF files ---

CONTRACT = "clearhead.contract"
"""The metadata that hold what a model was trained under."""


def read_gguf(path: Path, *, dtype: torch.dtype | None, head: Head | None) -> Pretrained:
    """The network of a file, with another head if one is given."""
    file = GgufFile.open(path)
    document, rules = described(content_of(file))
    _check_gguf_memory(file, dtype)

    def tensors(dtype: torch.dtype | None) -> dict[str, Tensor]:
        return _gguf_tensors(file, rules, dtype or _gguf_dtype(file))

    return opened(Source(path, document, str(path), tensors, None), dtype=dtype, head=head)


def gguf_tokenizer(path: Path) -> Tokenizer | None:
    """The tokenizer of a file; None if it has none."""
    opened_tokenizer = open_metadata(GgufFile.open(path).metadata, where=str(path))
    return None if opened_tokenizer is None else Tokenizer(opened_tokenizer.library, opened_tokenizer.settings)


def gguf_contract(path: Path) -> Contract:
    """The contract of a model that was exported to a file; an empty contract for other files."""
    content = GgufFile.open(path).metadata.get(CONTRACT, "{}")
    where = f"{path}:{CONTRACT}"
    return Contract.read(parse(str(content).encode(), where), Path(where))


def _gguf_dtype(file: GgufFile) -> torch.dtype:
    return common_dtype((file.dtype_of(name), stored.count) for name, stored in file.tensors.items())


def _check_gguf_memory(file: GgufFile, dtype: torch.dtype | None) -> None:
    """Raises OutOfMemory unless the weights fit: plain ones in their own type are mapped, all others allocated."""
    target = dtype or _gguf_dtype(file)
    mapped = {name for name, one in file.tensors.items() if one.is_plain and file.dtype_of(name) == target}
    allocated = sum(one.count for name, one in file.tensors.items() if name not in mapped) * target.itemsize
    size = sum(file.tensors[name].n_bytes for name in mapped)
    require_weights(file.path, torch.device("cpu"), allocated=allocated, mapped=size)


def _gguf_tensors(file: GgufFile, rules: Sequence[Rule], target: torch.dtype) -> dict[str, Tensor]:
    """The tensors under the family's names, one after the other, so that only one is in memory twice."""
    tensors: dict[str, Tensor] = {}
    for name in file.tensors:
        tensor = file.read(name, target)
        loaded = mapping.load(rules, {name: tensor}, where=str(file.path))
        renamed = {ours: _in_type(one, target) for ours, one in loaded.tensors.items()}
        if not any(one.data_ptr() == tensor.data_ptr() for one in renamed.values()):
            file.release(name)
        tensors |= renamed
    return tensors


def _in_type(tensor: Tensor, target: torch.dtype) -> Tensor:
    """The tensor in this type if the conversion is exact. Files keep vectors in float32."""
    if torch.promote_types(tensor.dtype, target) == target:
        return tensor.to(target)
    narrow: Any = tensor.to(target) if tensor.ndim < 2 else None
    return narrow if narrow is not None and torch.equal(narrow.to(tensor.dtype), tensor) else tensor


# --- memory ---

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
BROKEN = (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError)
"""The errors of a broken file, which its reader explains later."""


def check_load(folder: Path, *, dtype: torch.dtype | None, device: torch.device, int8: bool) -> None:
    """Raises OutOfMemory unless the weights of this folder fit into memory in this type and on this device.

    Weights in their stored type are mapped. They take addresses, but only memory that the kernel can reclaim.
    """
    try:
        files = [folder / name for name in weights_files(folder) if (folder / name).is_file()]
        sizes = {file: file.stat().st_size for file in files}
        # Only archives can be mapped to memory.
        whole = [file for file in files if file.suffix == ".bin" and not zipfile.is_zipfile(file)]
    except BROKEN:
        return
    cpu = torch.device("cpu")
    copied = sum(sizes[file] for file in whole)
    require_weights(folder, cpu, allocated=copied, mapped=sum(sizes.values()) - copied)
    try:
        tensors = [one for file in files if file.suffix == ".safetensors" for one in stored(file)]
    except BROKEN:
        return
    except RuntimeError as error:
        if not is_memory(error):
            return
        # The kernel refuses to map a file larger than all memory for writing, even without a write.
        raise OutOfMemory(
            f"{folder}: expected weights that this machine can map into memory, got {gigabytes(sum(sizes.values()))};"
            " try a smaller model"
        ) from None
    target = dtype or common_dtype(tensors)
    allocated = sum(n * target.itemsize for kind, n in tensors if kind != target)
    if int8:
        allocated += sum(n for _, n in tensors)
    require_weights(folder, cpu, allocated=allocated)
    if device.type != "cpu":
        require_weights(folder, device, allocated=sum(n * target.itemsize for _, n in tensors))


def stored(file: Path) -> Iterator[tuple[torch.dtype, int]]:
    """Type and size of each tensor of floating-point numbers, from the header of a file."""
    with safe_open(file, framework="pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118 - no mapping
            part = tensors.get_slice(name)
            if part.get_dtype() in TYPES:
                yield TYPES[part.get_dtype()], torch.Size(part.get_shape()).numel()
