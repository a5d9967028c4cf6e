"""Reads JSON files from elsewhere strictly, and knows the files of weights in a folder. Imports no torch."""

import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import JsonValue

from clearhead.errors import UserError, refuse
from clearhead.json_text import PLAIN_NAME, JsonObject, parse

CONFIG_LIMIT = 8 << 20
"""Most bytes of a settings file."""
LIMIT = 64 << 20
"""Most bytes of an index or a vocabulary."""

MODEL = "model.safetensors"
INDEX = "model.safetensors.index.json"

AGAIN = "try downloading it again"


def read_json(path: Path, *, limit: int = LIMIT, remedy: str = AGAIN) -> JsonObject:
    """The object in a file. Raises UserError for any other content."""
    document = _read(path, limit, remedy)
    if not isinstance(document, dict):
        raise UserError(f"{path}: expected a JSON object, got {type(document).__name__}; {remedy}")
    return document


def read_list(path: Path) -> list[JsonValue]:
    """The list in a file. Raises UserError like `read_json`."""
    document = _read(path, CONFIG_LIMIT, AGAIN)
    if not isinstance(document, list):
        raise UserError(f"{path}: expected a JSON list, got {type(document).__name__}; {AGAIN}")
    return document


def _read(path: Path, limit: int, remedy: str) -> JsonValue:
    size = size_of(path)
    if size > limit:
        raise UserError(f"{path}: expected at most {limit:,} bytes, got {size:,}; {remedy}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: expected to read it, got {error.strerror}; {remedy}") from None
    return parse(content, str(path), remedy=remedy, table=_table(path, remedy))


def is_there(path: Path) -> bool:
    """Returns True if the path exists. Raises UserError if the system cannot tell."""
    try:
        return path.exists()
    except OSError as error:
        raise UserError(f"{path}: expected to read it, got {error.strerror}; check the folder") from None


def size_of(path: Path) -> int:
    """The bytes of a regular file, or of the one behind a link. Raises UserError for anything else."""
    try:
        about = path.stat()
    except FileNotFoundError:
        raise UserError(f"{path}: expected a file, got none; try the complete folder") from None
    except OSError as error:
        raise UserError(f"{path}: expected to read it, got {error.strerror}; {AGAIN}") from None
    if not stat.S_ISREG(about.st_mode):
        raise UserError(f"{path}: expected a regular file, got something else; {AGAIN}")
    return about.st_size


def short(value: object) -> str:
    """The Python repr of a value from elsewhere, cut if it is long."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"


def shown(text: str) -> str:
    """A name or a message from elsewhere as one printable line."""
    plain = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
    return plain if len(plain) <= 200 else f"{plain[:199]}…"


def _table(path: Path, remedy: str) -> Callable[[list[tuple[str, JsonValue]]], JsonObject]:
    """The JSON hook that receives every pair of a table, including repeated keys."""

    def table(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
        for name, value in pairs:
            if not _finite(value):
                raise refuse(f"{path}:{shown(name)}", "finite numbers", "NaN or infinity", remedy)
        counts = Counter(name for name, _ in pairs)
        if twice := next((name for name, count in counts.items() if count > 1), None):
            raise refuse(f"{path}:{shown(twice)}", "each key once", "it again", "try removing one")
        return dict(pairs)

    return table


def _finite(value: JsonValue) -> bool:
    """Returns True if a number, or each number of a list, is finite. Inner tables are checked already."""
    if isinstance(value, list):
        return all(map(_finite, value))
    return not isinstance(value, int | float) or abs(value) <= sys.float_info.max


@dataclass(frozen=True)
class Index:
    """An index of the tensors in each file, such as `model.safetensors.index.json`."""

    path: Path
    shards: Mapping[str, frozenset[str]]
    """File name -> the names of its tensors, in the order of the index."""

    @classmethod
    def read(cls, path: Path, *, suffix: str) -> "Index":
        """Every file must have this suffix and lie in the same folder."""
        table = read_json(path).get("weight_map")
        if not isinstance(table, dict) or not table:
            raise UserError(f"{path}:weight_map: expected a table of tensors and their files, got none; {AGAIN}")
        shards: dict[str, set[str]] = {}
        for name, file in table.items():
            if not isinstance(file, str) or not PLAIN_NAME.fullmatch(file) or not file.endswith(suffix):
                expected = f"the name of a {suffix} file in this folder"
                raise UserError(f"{path}:{shown(name)}: expected {expected}, got {shown(repr(file))}; {AGAIN}")
            shards.setdefault(file, set()).add(name)
        return cls(path, {file: frozenset(names) for file, names in shards.items()})

    def check(self, file: str, found: Iterable[str]) -> None:
        """Raises UserError, which names tensor and files, unless the file holds exactly the tensors in the index."""
        listed, found = self.shards[file], set(found)
        where = self.path.parent / file
        if missing := listed - found:
            name = shown(min(missing))
            raise UserError(f"{where}:{name}: expected this tensor, as {self.path.name} says, got none; {AGAIN}")
        if extra := found - listed:
            name = shown(min(extra))
            raise UserError(f"{where}:{name}: expected no tensor that {self.path.name} places elsewhere; {AGAIN}")


# --- weights in forms that are not supported -----------------------------------------------------------------------

ADAPTER = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_HEAD = "clearhead_head.json"
"""The head that was trained with an adapter, with the names of its labels, which PEFT does not keep."""
ADAPTERS = (ADAPTER_WEIGHTS, "adapter_model.bin")
ORIGIN = "try the checkpoint it was made from, in safetensors"


_OF_TRANSFORMERS_4 = "try save_pretrained of transformers 4, with {}=True"
FORMS = {
    "*.gguf": ("GGUF files, of which one is a model", "try hf download of one of them, and its path as the model"),
    "*.ggml": ("GGML, older weights for inference programs", ORIGIN),
    "*.onnx": ("an ONNX graph", ORIGIN),
    "*.h5": ("the weights of TensorFlow", _OF_TRANSFORMERS_4.format("from_tf")),
    "*.ckpt.index": ("the weights of TensorFlow", _OF_TRANSFORMERS_4.format("from_tf")),
    "flax_model*.msgpack": ("the weights of Flax", _OF_TRANSFORMERS_4.format("from_flax")),
    "rust_model.ot": ("the weights of a Rust library", ORIGIN),
    "openvino_*.xml": ("an OpenVINO graph", ORIGIN),
    "*.mlpackage": ("a Core ML model", ORIGIN),
    "*.engine": ("a TensorRT engine", ORIGIN),
    "weights*.npz": ("the weights of MLX", ORIGIN),
    "consolidated*": ("weights under their authors' own names", "try the same model as transformers has it"),
}
"""Unsupported forms of weights by the names of their files, each with what it is and a remedy."""


def refuse_adapter(folder: Path) -> None:
    """Raises UserError if the folder holds the weights of an adapter without its config."""
    for name in ADAPTERS:
        if (path := folder / name).is_file():
            raise UserError(f"{path}: expected {ADAPTER} beside an adapter, got none; try the complete folder")


def other_form(names: Iterable[str], *, where: str) -> UserError | None:
    """The error for these files if one of them is of a known unsupported form."""
    there = sorted(names)
    for pattern, (what, remedy) in FORMS.items():
        for name in there:
            if fnmatchcase(name.rpartition("/")[2], pattern):
                return refuse(f"{where}/{shown(name)}", "weights in safetensors", what, remedy)
    return None


def refuse_other_form(folder: Path) -> None:
    """Raises UserError if the folder, or one within it, holds weights in a known unsupported form."""
    names = [path.relative_to(folder).as_posix() for pattern in ("*", "*/*") for path in folder.glob(pattern)]
    if (error := other_form(names, where=str(folder))) is not None:
        raise error
