"""What programs, files and links of others rely on, a line each: `python -m tests.surface --write` after a change.

It refuses to forget a line whose name the changelog's newest version does not mention.
"""

import dataclasses
import inspect
import re
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args
from unittest.mock import MagicMock

import cyclopts
from starlette.applications import Starlette

from clearhead.capture.passes import every_address
from clearhead.cli.commands import COMMANDS, REPLACED, application
from clearhead.extensions import Group
from clearhead.serve import schemas, server
from clearhead.tasks.registry import recipe_schema
from tests.conftest import ROOT
from tests.small_models import model_of

FILE = ROOT / "tests" / "surface.txt"
PAGE = ROOT / "docs" / "public-api.md"
TABLE = re.compile(r"^\| `(clearhead[\w.]*)` \| (`[^|]+`) \|$", re.MULTILINE)
MODELS = ("demo", "nano", "text-classifier")


def names() -> Iterator[str]:
    """Stable names, with the parameters of functions, classes and methods that have a docstring."""
    for module, stated in TABLE.findall(PAGE.read_text(encoding="utf-8").partition("entry point")[0]):
        for name in re.findall(r"`(\w+)`", stated):
            value = getattr(import_module(module), name)
            yield f"name {module}.{name}{_parameters(value)}"
            if inspect.isclass(value):
                for method, function in sorted(vars(value).items()):
                    if not method.startswith("_") and inspect.isfunction(function) and function.__doc__:
                        yield f"name {module}.{name}.{method}{_parameters(function)}"
                if dataclasses.is_dataclass(value):
                    yield from (f"name {module}.{name}.{field.name}" for field in dataclasses.fields(value))


def _parameters(value: Any) -> str:
    """(a, b=, *, c=): names, places and which may be left out. The types are the type checker's to keep."""
    if not callable(value):
        return ""
    try:
        listed = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ""
    shown = (
        str(one.replace(annotation=one.empty, default=one.empty)) + "=" * (one.default is not one.empty)
        for one in listed
    )
    return f"({', '.join(shown)})"


def fields(kind: str, schema: dict[str, Any]) -> Iterator[str]:
    """Each field of a JSON Schema, and what it takes."""
    tables = {**schema.get("$defs", {}), **({schema["title"]: schema} if "properties" in schema else {})}
    for table, of in tables.items():
        for name, field in of.get("properties", {}).items():
            taken = field.get("const", field.get("enum", field.get("$ref", field.get("type", "one of several"))))
            yield f"{kind} {table}.{name}: {str(taken).rpartition('/')[2]}"


def checkpoints() -> Iterator[str]:
    """Addresses of values, and the files of a saved model with their fields."""
    import json

    from safetensors import safe_open

    for preset in MODELS:
        model = model_of(preset, n_layers=1)
        yield from (f"address {preset} {address}" for address in every_address(model))
        with tempfile.TemporaryDirectory() as folder:
            for path in sorted(model.save(Path(folder) / preset).iterdir()):
                yield f"checkpoint {preset} {path.name}"
                if path.suffix == ".json":
                    yield from (f"checkpoint {preset} {path.name} {key}" for key in json.loads(path.read_text()))
                elif path.suffix == ".safetensors":
                    with safe_open(path, framework="pt") as tensors:
                        yield from (f"checkpoint {preset} tensor {name}" for name in tensors.keys())  # noqa: SIM118


def routes() -> Iterator[str]:
    """What servers answer, and the fields of the requests."""
    nobody: Any = MagicMock()
    guarded: Any = server.application(nobody)
    found: list[Any] = (guarded if isinstance(guarded, Starlette) else guarded.app).routes
    yield from (f"route {','.join(sorted(route.methods or ()))} {route.path}" for route in found)
    for name, request in sorted(vars(schemas).items()):
        if inspect.isclass(request) and issubclass(request, schemas.Request) and request is not schemas.Request:
            yield from fields("request", {**request.model_json_schema(), "title": name})


def commands(app: cyclopts.App, path: str = "clearhead") -> Iterator[str]:
    yield f"command {path}"
    if app.default_command is not None:
        for argument in app.assemble_argument_collection():
            yield from (f"command {path} {name}" for name in argument.names if argument.show)
    for name in app:
        if not name.startswith("-") and name not in REPLACED:
            yield from commands(app[name], f"{path} {name}")


def links() -> Iterator[str]:
    """The fields of permalinks, and the places that they name."""
    text = (ROOT / "ui/src/state/permalink.ts").read_text(encoding="utf-8")
    yield from re.findall(r"^const (VERSION = \S+);", text, re.MULTILINE)
    for group in re.findall(r"^const (?:PLAIN|COUNTS) = \[(.+)\]", text, re.MULTILINE):
        yield from (f"link {name}" for name in re.findall(r'"(\w+)"', group))


def surface() -> list[str]:
    of_recipes = fields("recipe", recipe_schema())
    every = [*names(), *of_recipes, *checkpoints(), *routes(), *commands(application(titles=COMMANDS)), *links()]
    return sorted({*every, *(f"entry point {name}" for name in get_args(Group))})


def unexplained(before: list[str], now: list[str], changelog: str) -> list[str]:
    """What is gone or changed, and not named in the changelog's newest version."""
    newest = changelog.partition("\n## ")[2].partition("\n## ")[0]
    return [line for line in before if line not in set(now) and _name(line) not in newest]


def _name(line: str) -> str:
    """The last part of what a line is about, such as `translate` of a method."""
    words = line.split("(")[0].split(":")[0].split()
    return words[-1].rpartition(".")[2] if words[0] in {"name", "recipe", "request"} else words[-1]


def main(arguments: list[str]) -> int:
    before, now = FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else [], surface()
    silent = unexplained(before, now, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    if silent:
        print("CHANGELOG.md: expected a line about each of these in its newest version:", *silent, sep="\n  ")
        return 1
    if "--write" in arguments:
        FILE.write_text("\n".join(now) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
