"""Reads modules.json, in which sentence-transformers lists the parts of a sentence encoder. Imports no torch."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from clearhead.checkpoints.weights.documents import read_json, read_list, short, shown
from clearhead.errors import UserError
from clearhead.json_text import PLAIN_NAME, JsonObject

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
CONFIG = "config.json"
LIBRARY = "sentence_transformers."
NETWORK = "Transformer"
CROSS_ENCODER = "CrossEncoder"
TEXTS = "sentence_*_config.json"
"""Settings files for reading texts."""


@dataclass(frozen=True)
class Listed:
    """One entry of modules.json."""

    name: str
    path: str
    """Its folder; empty for the folder of modules.json itself."""
    type: str
    """The class there, with its modules."""

    @property
    def kind(self) -> str:
        """The class without its modules, such as Pooling."""
        return self.type.rpartition(".")[2]

    def to_document(self, idx: int) -> JsonObject:
        """The entry as it is stored."""
        return {"idx": idx, "name": self.name, "path": self.path, "type": self.type}


def listed(folder: Path) -> tuple[Listed, ...]:
    """The entries of the folder's modules.json, beginning with the network; none without the file.

    Raises UserError for entries that are malformed, that name a folder outside, or that begin with another module.
    """
    path = folder / MODULES
    if not path.is_file():
        return ()
    modules = tuple(_entry(value, f"{path}:{i}") for i, value in enumerate(read_list(path)))
    names = [module.name for module in modules]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{path}: expected each name once, got {shown(twice)} again; try the file it was saved with")
    if [module.kind for module in modules].count(NETWORK) != 1 or modules[0].kind != NETWORK:
        got = shown(", ".join(module.kind for module in modules)) or "an empty list"
        raise UserError(f"{path}: expected one {NETWORK}, the first of the list, got {got}; try another model")
    return modules


def network_folder(folder: Path) -> Path:
    """The folder of config.json, weights and tokenizer: the one that modules.json names, or this one."""
    modules = listed(folder)
    return folder / modules[0].path if modules else folder


def settings(folder: Path) -> JsonObject:
    """The content of config_sentence_transformers.json; empty without the file."""
    path = folder / SETTINGS
    return read_json(path) if path.is_file() else {}


def texts_file(folder: Path, names: Collection[str]) -> Path | None:
    """The file of settings for reading texts, in the network's folder. Raises UserError if there are several."""
    found = sorted(folder / name for name in names if (folder / name).is_file())
    if len(found) > 1:
        raise UserError(f"{found[1]}: expected one such file, got {found[0].name} too; try without one of them")
    return found[0] if found else None


def _entry(value: object, where: str) -> Listed:
    if not isinstance(value, dict):
        raise UserError(f"{where}: expected a table with name, path and type, got {short(value)}; try another file")
    for field in ("name", "path", "type"):
        if not isinstance(value.get(field), str):
            raise UserError(f"{where}:{field}: expected text, got {short(value.get(field))}; try the file it came with")
    path = value["path"].strip("/") if not value["path"].startswith("/") else value["path"]
    if path and not all(PLAIN_NAME.fullmatch(part) for part in path.split("/")):
        raise UserError(f"{where}:path: expected a folder in this one, got {short(value['path'])}; try its plain name")
    if not value["type"].startswith(LIBRARY):
        expected = f"expected a class of {LIBRARY.rstrip('.')}, got {short(value['type'])}, which is code of its own"
        raise UserError(f"{where}:type: {expected}; try a model without it")
    return Listed(value["name"], path, value["type"])
