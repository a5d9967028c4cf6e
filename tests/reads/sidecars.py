"""The fields that the reference libraries read of files beside config.json, by their source, and what becomes of each.

The build has no sentence-transformers: its fields are kept in sentence_transformers.toml, as `of_sentences` finds them.
"""

import ast
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import peft
import transformers

import clearhead
from clearhead.api.adapters import READ
from clearhead.checkpoints.families.generation import IGNORED, UNFOLLOWED, GenerationFields
from clearhead.data import images, sounds
from clearhead.text.formats.classes import REFUSED, table
from tests.reads.entries import listed
from tests.reads.source import definition, name_of, parsed

KWARGS = ("kwargs", "init_kwargs", "tokenizer_config", "config_tokenizer")
OWN = ("clearhead/text/**/*.py", "clearhead/data/**/*.py", "clearhead/api/sentences.py")
PROCESSORS = {
    "image": "ViTImageProcessor DeiTImageProcessor CLIPImageProcessor SiglipImageProcessor BitImageProcessor",
    "sound": "WhisperFeatureExtractor",
    "wave": "Wav2Vec2FeatureExtractor",
}


def of_adapters() -> set[str]:
    """adapter_config.json: what the configs of PEFT declare."""
    bases = [(one.__module__, one.__name__) for one in peft.LoraConfig.__mro__ if one.__module__.startswith("peft.")]
    return {name for place in bases for name in _annotated(definition(place).node)}


def of_generation() -> set[str]:
    """generation_config.json: what is read of it in transformers/generation, and by classes that generate otherwise."""
    folder = Path(transformers.__file__).parent
    files = [*(folder / "generation").glob("*.py"), folder / "models/whisper/generation_whisper.py"]
    config = parsed("transformers.generation.configuration_utils")
    assert config is not None
    init = next(
        one
        for one in ast.walk(config.definitions["GenerationConfig"].node)
        if isinstance(one, ast.FunctionDef) and one.name == "__init__"
    )
    found = {*_keys(init, KWARGS)}
    for file in files:
        found |= {*_attributes(ast.parse(file.read_text()), ("generation_config",))}
    return {name for name in found if not callable(getattr(transformers.GenerationConfig, name, None))}


def of_tokenizers() -> dict[str, set[str]]:
    """tokenizer_config.json: field -> the classes that are opened and read it, "" for all."""
    found: dict[str, set[str]] = {}
    for name in sorted({name for kind in table().classes for name in kind.names}):
        for one in getattr(transformers, name, object).__mro__:
            if one.__module__.startswith("transformers.") and (module := parsed(one.__module__)) is not None:
                node = module.definitions[one.__name__].node
                shared = not one.__module__.startswith("transformers.models.")
                for field in {*_keys(node, KWARGS), *_parameters(node)}:
                    found.setdefault(field, set()).add("" if shared else name)
    return found


def of_processors(kind: str) -> set[str]:
    """preprocessor_config.json: what the constructors, the class and its table of arguments name."""
    found: set[str] = set()
    for name in PROCESSORS[kind].split():
        cls: Any = getattr(transformers, f"{name}Pil", None) or getattr(transformers, name)
        tables = [vars(one).get("valid_kwargs") for one in cls.__mro__]
        for one in (*cls.__mro__, *tables):
            if getattr(one, "__module__", "").startswith("transformers."):
                module = parsed(one.__module__)
                if module is not None and one.__name__ in module.definitions:
                    found |= {*_parameters(module.definitions[one.__name__].node)}
        found |= {field for one in tables if one is not None for field in one.__annotations__}
    return found


def of_processor(kind: str, name: str) -> str:
    """What becomes of a field of preprocessor_config.json. Any other is refused, as the test tries."""
    config = {"image": images.ImageConfig, "sound": sounds.SoundConfig, "wave": sounds.WaveConfig}[kind]
    if name in (*config.model_fields, "default_to_square"):
        return "applied"
    return "unread" if name in config.ignored else "one value" if name in config.only else "refused"


@cache
def of_sentences() -> dict[str, list[str]]:
    """The files of sentence-transformers: class -> fields, from its source where it is installed."""
    spec = find_spec("sentence_transformers")
    if spec is None or spec.origin is None:
        text = Path(__file__).with_name("sentence_transformers.toml").read_text()
        return tomllib.loads(text)["fields"]
    return sentences_in(Path(spec.origin).parent)


def version_of_sentences() -> str:
    """The version whose fields are kept."""
    return tomllib.loads(Path(__file__).with_name("sentence_transformers.toml").read_text())["version"]


def sentences_in(folder: Path) -> dict[str, list[str]]:
    """Class -> the fields of its file, by the source in this folder."""
    found: dict[str, set[str]] = {}
    for path in folder.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name in SENTENCES:
                names = {*_keys(node, SETTINGS), *_saved(node)}
                names |= {*_parameters(node)} if node.name not in ("SentenceTransformer", "BaseModel") else set()
                found.setdefault(node.name, set()).update(names)
    return {name: sorted(fields) for name, fields in sorted(found.items())}


SENTENCES = "SentenceTransformer BaseModel Transformer Pooling Dense Dropout LayerNorm Normalize".split()
SETTINGS = ("config", "_model_config", "model_config", "init_kwargs")


def of_adapter(name: str) -> str:
    """What becomes of a field of adapter_config.json: others than those read are refused unless empty."""
    default = getattr(peft.LoraConfig, name, None)
    if name in listed("adapter"):
        return "unread"
    return "applied" if name in READ else "none" if default else "refused"


def of_setting(name: str) -> str:
    """What becomes of a field of generation_config.json. Any other is told to be not followed."""
    if name in GenerationFields.model_fields:
        return "applied"
    if name in UNFOLLOWED:
        return "told"
    known = name in listed("generation") or any(fnmatchcase(name, pattern) for pattern in IGNORED)
    return "unread" if known else "none"


def of_token(name: str) -> str:
    """What becomes of a field of tokenizer_config.json."""
    if name in REFUSED:
        return "refused"
    return "unread" if name in listed("tokenizers") else "applied" if name in _literals() else "none"


def outcomes() -> dict[str, dict[str, str]]:
    """File -> field -> what becomes of it. The files of sentence encoders have a test of their own."""
    return {
        "adapter_config.json": {name: of_adapter(name) for name in of_adapters()},
        "generation_config.json": {name: of_setting(name) for name in of_generation()},
        "tokenizer_config.json": {name: of_token(name) for name in of_tokenizers()},
    } | {
        f"preprocessor_config.json of {kind}": {name: of_processor(kind, name) for name in of_processors(kind)}
        for kind in PROCESSORS
    }


@cache
def _literals() -> set[str]:
    """The texts in the code that reads tokenizers."""
    root = Path(clearhead.__file__).parents[1]
    table_of_classes = (root / "clearhead/checkpoints/families/tokenizers.toml").read_text(encoding="utf-8")
    found = {*table_of_classes.replace('"', " ").replace(",", " ").split()}
    for file in (file for place in OWN for file in root.glob(place)):
        nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        found |= {one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return found | {f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")}


def _annotated(node: ast.AST) -> Iterator[str]:
    body = node.body if isinstance(node, ast.ClassDef) else []
    yield from (one.target.id for one in body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name))


def _parameters(node: ast.AST) -> Iterator[str]:
    """Those of the constructor, and the values that a class gives itself."""
    body = node.body if isinstance(node, ast.ClassDef) else []
    for one in body:
        if isinstance(one, ast.FunctionDef) and one.name == "__init__":
            yield from (arg.arg for arg in (*one.args.args, *one.args.kwonlyargs) if arg.arg != "self")


def _saved(node: ast.ClassDef) -> Iterator[str]:
    """The class's own list of the fields that it saves."""
    for one in node.body:
        value = one.value if isinstance(one, ast.Assign | ast.AnnAssign) else None
        target = one.targets[0] if isinstance(one, ast.Assign) else getattr(one, "target", None)
        if isinstance(target, ast.Name) and target.id == "config_keys" and isinstance(value, ast.List):
            yield from (str(key.value) for key in value.elts if isinstance(key, ast.Constant))


def _keys(node: ast.AST, owners: Iterable[str]) -> Iterator[str]:
    """Keys that are looked up in a table of one of these names."""
    for one in ast.walk(node):
        match one:
            case ast.Call(func=ast.Attribute(value=owner, attr="get" | "pop" | "setdefault"), args=[key, *_]):
                pass
            case ast.Subscript(value=owner, slice=key) | ast.Compare(left=key, comparators=[owner]):
                pass
            case _:
                continue
        if name_of(owner) in owners and isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value


def _attributes(node: ast.AST, owners: Iterable[str]) -> Iterator[str]:
    for one in ast.walk(node):
        match one:
            case ast.Attribute(value=owner, attr=name) if name_of(owner) in owners:
                yield name
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[owner, ast.Constant(value=str(name)), *_]):
                if name_of(owner) in owners:
                    yield name
