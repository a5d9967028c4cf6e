"""The source of both packages as syntax trees, for the architecture tests."""

import ast
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, LAB = "clearhead", "clearhead_lab"
FOLDERS = {PACKAGE: ROOT, LAB: ROOT / "lab"}
"""Where each distribution's package lies."""


@dataclass(frozen=True)
class Import:
    """One import: the module (and the name, for `from module import name`), and where it stands."""

    module: str
    name: str
    line: int
    function: str | None
    for_types_only: bool


@dataclass(frozen=True)
class Source:
    """One module of a package."""

    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"), filename=str(self.path))

    @property
    def module(self) -> str:
        """The dotted name: `clearhead.model.attention`; a package's own name for its `__init__.py`."""
        root = next(folder for name, folder in FOLDERS.items() if self.path.is_relative_to(folder / name))
        parts = self.path.relative_to(root).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def part(self) -> str:
        """The part that the import table names: `model`, `config`; empty for `clearhead` itself."""
        return part(self.module)

    def at(self, line: int) -> str:
        return f"{self.path.relative_to(ROOT)}:{line}"

    @cached_property
    def imports(self) -> list[Import]:
        found: list[Import] = []
        _collect(self.tree, found, function=None, for_types_only=False)
        return found

    @cached_property
    def docstrings(self) -> set[int]:
        """The ids of the constants that are docstrings, or stand alone and document a field."""
        alone = (node.value for node in ast.walk(self.tree) if isinstance(node, ast.Expr))
        return {id(value) for value in alone if isinstance(value, ast.Constant)}


def part(module: str) -> str:
    """`clearhead.model.block` -> `model`; the whole lab is one part."""
    if module.partition(".")[0] == LAB:
        return "lab"
    return module.partition(".")[2].partition(".")[0]


@cache
def sources() -> list[Source]:
    """Every module, parsed once for all tests of a process."""
    return [Source(path) for name, folder in FOLDERS.items() for path in sorted((folder / name).rglob("*.py"))]


def _collect(node: ast.AST, found: list[Import], *, function: str | None, for_types_only: bool) -> None:
    if isinstance(node, ast.Import):
        found += [Import(a.name, "", node.lineno, function, for_types_only) for a in node.names]
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        found += [Import(module, a.name, node.lineno, function, for_types_only) for a in node.names]
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function = function or node.name
    elif isinstance(node, ast.If):
        for child in node.body:
            types_only = for_types_only or "TYPE_CHECKING" in ast.unparse(node.test)
            _collect(child, found, function=function, for_types_only=types_only)
        for child in node.orelse:
            _collect(child, found, function=function, for_types_only=for_types_only)
        return
    for child in ast.iter_child_nodes(node):
        _collect(child, found, function=function, for_types_only=for_types_only)
