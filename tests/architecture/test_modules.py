"""No circle of imports, and no concrete method that a subclass overrides."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.architecture.source import PACKAGE, Source, sources

LAZY = "api.model"
"""The one module that imports upward, inside `Model.explore`, which opens the explorer."""


def circles(edges: dict[str, set[str]]) -> set[frozenset[str]]:
    """Sets of nodes that reach each other."""
    reached: dict[str, set[str]] = {}
    for start in edges:
        reached[start], todo = set(), [start]
        while todo:
            new = edges[todo.pop()] - reached[start]
            reached[start] |= new
            todo += new
    return {frozenset(m for m in reached[n] if n in reached[m]) for n in edges if n in reached[n]}


def imported(source: Source, known: set[str]) -> Iterator[str]:
    """The modules that a module imports when it runs, also inside functions."""
    for item in source.imports:
        whole = f"{item.module}.{item.name}"
        if not item.for_types_only and {whole, item.module} & known:
            yield whole if whole in known else item.module


def test_circle() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert circles(edges) == {frozenset("bc")}


def test_modules_import_no_circle() -> None:
    short = {source.module: source.module.removeprefix(f"{PACKAGE}.") for source in sources()}
    edges = {short[s.module]: {short[name] for name in imported(s, set(short))} - {short[s.module]} for s in sources()}
    upward = {name for name in edges[LAZY] if name.startswith("explorer.")}
    assert len(upward) == 1
    edges[LAZY] -= upward
    found = [sorted(circle) for circle in circles(edges)]
    assert not found, f"modules that import each other: {found}"


@dataclass(frozen=True)
class Class:
    """A class of the package: its methods, and its bases by name as its module knows them."""

    source: Source
    node: ast.ClassDef

    @property
    def methods(self) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
        found = (node for node in self.node.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        return {node.name: node for node in found}

    @property
    def bases(self) -> Iterator["Class"]:
        """Those in the package."""
        origins = {item.name: item.module for item in self.source.imports}
        for base in self.node.bases:
            name = ast.unparse(base).partition("[")[0]
            module, _, name = f"{origins.get(name, self.source.module)}.{name}".rpartition(".")
            yield from filter(None, [classes().get((module, name))])

    @property
    def concrete(self) -> dict[str, str]:
        """The methods with a body of their own, its bases' included, and where they are."""
        own = {
            name: self.source.at(node.lineno)
            for name, node in self.methods.items()
            if not any(ast.unparse(one).endswith(("abstractmethod", "overload")) for one in node.decorator_list)
        }
        return {name: place for base in self.bases for name, place in base.concrete.items()} | own


@cache
def classes() -> dict[tuple[str, str], Class]:
    found = (
        Class(source, node) for source in sources() for node in ast.walk(source.tree) if type(node) is ast.ClassDef
    )
    return {(one.source.module, one.node.name): one for one in found}


def test_no_concrete_method_is_overridden() -> None:
    wrong = [
        f"{one.source.at(node.lineno)}: {one.node.name}.{name} overrides {base.concrete[name]}; pass a part instead"
        for one in classes().values()
        for name, node in one.methods.items()
        if not name.startswith("__")
        for base in one.bases
        if name in base.concrete
    ]
    assert not wrong, "\n".join(wrong)
