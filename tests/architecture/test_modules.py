"""No circle of imports, and no concrete method that a subclass overrides."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.architecture.house import circles, edges
from tests.architecture.source import Source, sources


def test_circle():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert circles(edges) == {frozenset("bc")}


def test_modules_import_no_circle():
    found = [sorted(circle) for circle in circles(edges(with_types=False))]
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


def test_no_concrete_method_is_overridden():
    wrong = [
        f"{one.source.at(node.lineno)}: {one.node.name}.{name} overrides {base.concrete[name]}; pass a part instead"
        for one in classes().values()
        for name, node in one.methods.items()
        if not name.startswith("__")
        for base in one.bases
        if name in base.concrete
    ]
    assert not wrong, "\n".join(wrong)
