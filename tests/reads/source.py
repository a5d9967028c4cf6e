"""Which fields of a file the reference library reads, by its source: an over-approximation over definitions.

A definition (a function or a class) reaches every definition whose name it mentions, through imports; a class reaches
its bases and methods. A read is an attribute, `getattr`, `hasattr`, `get`, `pop` or an index of an expression that is
called a config, and of `self` within a config class.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec, resolve_name
from pathlib import Path

CONFIG = re.compile(r"(^|_)(config|cfg|configuration)$")
OTHER = re.compile(
    r"(generation|gen|continuous_batching|watermarking|quantization|cache|compile|peft|load|kernel|distributed|fusion"
    r"|assistant)_config$"
)
"""Configs of other files, or of a call."""
PARTS = re.compile(r"^(?!text_|decoder_|encoder_|layer_|per_layer_|effective_)(\w+)_config$")
"""The config of a part, whose fields lie in a table of the whole."""
TABLES = ("rope_parameters", "rope_scaling")
CALLS = re.compile(r"pretrained|hub|diff|json|_impl|from_dict|config_dict|^to_dict")
"""Methods of a config class whose `kwargs` come from a call, not from a file."""
Place = tuple[str, str]
"""A module and a name in it."""


class Definition:
    """One function, class or value of a module: what it mentions, and what it reads."""

    def __init__(self, node: ast.AST) -> None:
        self.node = node
        bases = (node.name.removesuffix("Config"), *map(name_of, node.bases)) if isinstance(node, ast.ClassDef) else ()
        self.is_config = any(name.endswith(("Config", "ConfigMixin")) for name in bases)

    @cached_property
    def mentions(self) -> set[str]:
        """Every name in it."""
        return {one.id for one in ast.walk(self.node) if isinstance(one, ast.Name)}

    @cached_property
    def reads(self) -> set[str]:
        """The fields that it reads."""
        if not self.is_config:
            return {*_reads(self.node, of_config=False)}
        return {name for one in self._body for name in (*_declared(one), *_reads(one, of_config=True))}

    @cached_property
    def own(self) -> set[str]:
        """Methods and constants of a config class, which are no fields."""
        methods = {one.name for one in self._body if isinstance(one, ast.FunctionDef) and not one.decorator_list}
        assigned = {name_of(target) for one in self._body if isinstance(one, ast.Assign) for target in one.targets}
        typed = {name_of(one.target) for one in self._body if isinstance(one, ast.AnnAssign)}
        return methods | assigned | (typed - {name for one in self._body for name in _declared(one)})

    @property
    def _body(self) -> list[ast.stmt]:
        return self.node.body if self.is_config and isinstance(self.node, ast.ClassDef) else []


@dataclass
class Module:
    """The definitions of a file, and what it imports: name -> where it is from."""

    definitions: dict[str, Definition]
    imports: dict[str, Place]


def path_of(module: str) -> Path | None:
    """The file of a module."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None


@cache
def parsed(name: str) -> Module | None:
    """A module's definitions."""
    path = path_of(name)
    if path is None or path.suffix != ".py":
        return None
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = Module({}, {})
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
            for one in node.names:
                found.imports[one.asname or one.name] = (origin, one.name)
    for node in _top(tree.body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.definitions[node.name] = Definition(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    found.definitions[target.id] = Definition(node.value)
    return found


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those within `if` and `try` too."""
    for node in body:
        match node:
            case ast.If():
                yield from _top([*node.body, *node.orelse])
            case ast.Try():
                yield from _top([*node.body, *node.orelse, *(s for h in node.handlers for s in h.body)])
            case _:
                yield node


def _declared(node: ast.stmt) -> Iterator[str]:
    """The fields that a statement of a config class declares, and their other names."""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id="attribute_map")], value=ast.Dict(keys=keys))
            | ast.AnnAssign(target=ast.Name(id="attribute_map"), value=ast.Dict(keys=keys))
        ):
            yield from (name for key in keys if key is not None for name in _text(key))
        case ast.AnnAssign(target=ast.Name(id=name), annotation=kind) if "ClassVar" not in ast.unparse(kind):
            yield name


def _reads(node: ast.AST, *, of_config: bool) -> Iterator[str]:
    from_file = of_config and isinstance(node, ast.FunctionDef) and not CALLS.search(node.name)
    called = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
    if isinstance(node, ast.FunctionDef):
        called += node.decorator_list
    methods = {id(one) for one in called}
    for one in ast.walk(node):
        match one:
            case ast.Attribute(value=owner, attr=name, ctx=ast.Load()) if id(one) not in methods:
                names, table = [name], _called(owner, of_config)
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[owner, name, *_]):
                names, table = [*_text(name)], _called(owner, of_config)
            case ast.Call(func=ast.Attribute(value=owner, attr="get" | "pop" | "setdefault"), args=[name, *_]):
                names, table = [*_text(name)], "" if from_file and name_of(owner) == "kwargs" else _called(owner, False)
            case ast.Subscript(value=owner, slice=name):
                names, table = [*_text(name)], _called(owner, False)
            case _:
                continue
        if table is not None:
            yield from (table + name for name in names if not name.startswith("__"))


def _text(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _text(node.body)
        yield from _text(node.orelse)


def name_of(node: ast.expr) -> str:
    """The name, or the last part of the dotted name, that an expression is."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _called(node: ast.expr, of_config: bool) -> str | None:
    """The table that an expression is: "" for the whole config, "rope_parameters." for one in it; None for neither."""
    match node:
        case ast.Call(func=ast.Attribute(attr="get_text_config" | "to_dict" | "to_diff_dict")):
            return ""
        case ast.Subscript(value=value) if _called(value, False) == "rope_parameters.":
            return "rope_parameters."
        case ast.Name(id="self"):
            return "" if of_config else None
    name = name_of(node)
    if name.startswith(TABLES) and not name.endswith(("keys", "s_list")):
        return "rope_parameters."
    if not CONFIG.search(name) or OTHER.search(name):
        return None
    return f"{name}." if PARTS.match(name) else ""


@cache
def resolve(place: Place) -> Place | None:
    """Where a name is defined, through re-exports."""
    for _ in range(6):
        module = parsed(place[0])
        if module is None:
            return None
        if place[1] in module.definitions:
            return place
        if place[1] not in module.imports:
            return None
        place = module.imports[place[1]]
    return None


def reached(starts: Iterable[Place], follow: Callable[[Place, Place], bool]) -> set[Place]:
    """Every definition that these reach by edges that `follow` allows."""
    seen: set[Place] = set()
    left = [place for start in starts if (place := resolve(start)) is not None]
    while left:
        place = left.pop()
        if place in seen:
            continue
        seen.add(place)
        left += [found for found in mentioned(place) if found not in seen and follow(place, found)]
    return seen


@cache
def mentioned(place: Place) -> set[Place]:
    """The definitions whose names one mentions."""
    found = {resolve((place[0], name)) for name in definition(place).mentions}
    return {one for one in found if one is not None}


def definition(place: Place) -> Definition:
    """A definition."""
    module = parsed(place[0])
    assert module is not None
    return module.definitions[place[1]]
