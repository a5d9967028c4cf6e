"""Recognises models in unsupported forms, and says what to do with them. Imports no torch."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from clearhead.checkpoints.weights.documents import shown
from clearhead.errors import UserError

ADAPTER = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_HEAD = "clearhead_head.json"
"""The head that was trained with an adapter, with the names of its labels, which PEFT does not keep."""
ADAPTERS = (ADAPTER_WEIGHTS, "adapter_model.bin")
ORIGIN = "try the checkpoint it was made from, in safetensors"


@dataclass(frozen=True)
class Form:
    """An unsupported form of weights."""

    pattern: str
    what: str
    remedy: str = ORIGIN


FORMS = (
    Form("*.gguf", "GGUF files, of which one is a model", "try hf download of one of them, and its path as the model"),
    Form("*.ggml", "GGML, older weights for inference programs"),
    Form("*.onnx", "an ONNX graph"),
    Form("*.h5", "the weights of TensorFlow", "try save_pretrained of transformers 4, with from_tf=True"),
    Form("*.ckpt.index", "the weights of TensorFlow", "try save_pretrained of transformers 4, with from_tf=True"),
    Form("flax_model*.msgpack", "the weights of Flax", "try save_pretrained of transformers 4, with from_flax=True"),
    Form("rust_model.ot", "the weights of a Rust library"),
    Form("openvino_*.xml", "an OpenVINO graph"),
    Form("*.mlpackage", "a Core ML model"),
    Form("*.engine", "a TensorRT engine"),
    Form("weights*.npz", "the weights of MLX"),
    Form("consolidated*", "weights under their authors' own names", "try the same model as transformers has it"),
)


def refuse_adapter(folder: Path) -> None:
    """Raises UserError if the folder holds the weights of an adapter without its config."""
    for name in ADAPTERS:
        if (path := folder / name).is_file():
            raise UserError(f"{path}: expected {ADAPTER} beside an adapter, got none; try the complete folder")


def other_form(names: Iterable[str], *, where: str) -> UserError | None:
    """The error for these files if one of them is of a known unsupported form."""
    there = sorted(names)
    for form in FORMS:
        for name in there:
            if fnmatchcase(name.rpartition("/")[2], form.pattern):
                expected = "expected weights in safetensors"
                return UserError(f"{where}/{shown(name)}: {expected}, got {form.what}; {form.remedy}")
    return None


def refuse_other_form(folder: Path) -> None:
    """Raises UserError if the folder, or one within it, holds weights in a known unsupported form."""
    names = [path.relative_to(folder).as_posix() for pattern in ("*", "*/*") for path in folder.glob(pattern)]
    if (error := other_form(names, where=str(folder))) is not None:
        raise error
