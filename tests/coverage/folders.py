"""The modelling folders of the installed reference library: their model types, config classes and model classes."""

import dataclasses
import inspect
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from clearhead.checkpoints.families import families
from tests.parity.cases import CASES, DERIVED, PICTURED, TEXT_PARTS
from tests.parity.harness import Case

MODEL = re.compile(r"(Model|For\w+|LMHeadModel|MTModel)$")
NOT_ONE = re.compile(r"(PreTrainedModel|Backbone|DecoderModel|EncoderModel|TextModel|VisionModel)$")
"""Classes that are a model, and those that are a part of one."""


@dataclass(frozen=True)
class Modelled:
    """A model type of a folder."""

    folder: str
    model_type: str


def folders() -> list[str]:
    """Every folder of the library that has a file with a model."""
    import transformers.models

    root = Path(transformers.models.__path__[0])
    return sorted({file.parent.name for file in root.glob("*/modeling_*.py")} - {"auto"})


@cache
def types() -> dict[str, list[str]]:
    """The model types of each folder, the one with the folder's name first."""
    from transformers.models.auto import configuration_auto as auto

    found: dict[str, list[str]] = {}
    for name in auto.CONFIG_MAPPING_NAMES:
        found.setdefault(auto.model_type_to_module_name(name), []).append(name)
    for folder, names in found.items():
        names.sort(key=lambda name: (name.replace("-", "_") != folder, "_text" in name or "_vision" in name))
    return found


def rows(folder: str) -> list[Modelled]:
    """The first model type of a folder, and every other that a family has."""
    ours = {family.model_type for family in families()}
    names = types().get(folder) or [folder]
    return [Modelled(folder, name) for name in names if name == names[0] or name in ours]


def config_class(one: Modelled) -> Any:
    """The class of its config. Raises LookupError or ImportError without one."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING[one.model_type]


def document(one: Modelled) -> tuple[dict[str, Any], str]:
    """The default config as a file has it, and why it is not what the class itself makes, if so.

    A class that makes no config without further values still says which fields it has, with their defaults.
    """
    try:
        wanted = config_class(one)
    except (LookupError, ImportError) as error:
        return {"model_type": one.model_type}, f"no config class: {told(error)}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = json.loads(wanted().to_json_string(use_diff=False))
    except Exception as error:  # of a library of which nothing is known
        plain = (str, int, float, bool, list, dict)
        found = {field.name: field.default for field in dataclasses.fields(wanted) if isinstance(field.default, plain)}
        return {**found, "model_type": one.model_type}, f"no default config: {told(error)}"
    return {**found, "model_type": one.model_type}, ""


def told(error: BaseException) -> str:
    """An error of a library, as one short line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


@cache
def classes(one: Modelled) -> tuple[str, ...]:
    """The model classes of a type: those that write words first, then the rest as the library lists them."""
    wanted = config_class(one)
    found: list[str] = []
    for module in _modules(one.folder):
        for name in getattr(module, "__all__", ()):
            model = getattr(module, name, None)
            is_model = inspect.isclass(model) and MODEL.search(name) and not NOT_ONE.search(name)
            if is_model and getattr(model, "config_class", None) is wanted:
                found.append(name)
    first = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel", "ForMaskedLM")
    return tuple(
        sorted(dict.fromkeys(found), key=lambda name: next((i for i, end in enumerate(first) if name.endswith(end)), 9))
    )


def _modules(folder: str) -> Iterator[Any]:
    import transformers.models

    root = Path(transformers.models.__path__[0]) / folder
    for file in sorted(root.glob("modeling_*.py")):
        yield import_module(f"transformers.models.{folder}.{file.stem}")


@cache
def cases() -> dict[str, dict[str, Case]]:
    """The tiny configs that the parity tests have, by model type and class."""
    found: dict[str, dict[str, Case]] = {}
    for case in reversed([*CASES, *DERIVED, *PICTURED, *TEXT_PARTS]):
        if case.variant in ("base", "plain") or case.architecture not in found.get(case.family, {}):
            found.setdefault(case.family, {})[case.architecture] = case
    return found


def tiny(model_type: str, architecture: str) -> Case | None:
    """A tiny config of a class: that of the parity tests, else of another class of its type. None without any."""
    known = cases().get(model_type, {})
    if architecture in known:
        return known[architecture]
    for case in known.values():
        return Case(model_type, "tiny", architecture, case.config, case.pad)
    return None
