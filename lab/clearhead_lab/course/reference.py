"""The reference of the Python API: one page for each part of clearhead and one for the lab, from their docstrings."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import clearhead

PACKAGE, LAB = Path(clearhead.__file__).parent, Path(__file__).parents[1]
PARTS = {
    "api": "Models",
    "trace": "Trace",
    "config": "Architectures",
    "model": "The network",
    "analysis": "Analysis",
    "generation": "Generation",
    "recipe": "Recipes",
    "text": "Texts and tokenizers",
    "data": "Data",
    "tasks": "Tasks",
    "training": "Training",
    "checkpoints": "Checkpoints and families",
    "explorer": "The explorer",
    "batch": "Batches",
    "capture": "Capture",
    "sklearn": "scikit-learn",
    "errors": "Errors",
    "lab": "The lab",
}
"""The parts with a page, and its title."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A module of a part, with what it defines for others."""

    part: str
    name: str
    tree: ast.Module
    public: list[Definition] = field(default_factory=list[Definition])


@cache
def modules() -> tuple[Module, ...]:
    """Every module with public names, in the order of the pages."""
    found: list[Module] = []
    for part in PARTS:
        folder = LAB if part == "lab" else PACKAGE / part
        for one in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]:
            root = LAB.parent if part == "lab" else PACKAGE.parent
            name = ".".join(one.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            if any(piece.startswith("_") for piece in name.split(".")) or one.is_relative_to(LAB / "course"):
                continue
            tree = ast.parse(one.read_text(encoding="utf-8"))
            public = [node for node in tree.body if isinstance(node, Definition) and not node.name.startswith("_")]
            if public or [*_constants(tree)]:
                found.append(Module(part, name, tree, public))
    return tuple(found)


def package(part: str) -> str:
    """The name under which Python imports a part."""
    return LAB.name if part == "lab" else f"{PACKAGE.name}.{part}"


def pages() -> Iterator[tuple[str, str]]:
    """The name and the Markdown of every page."""
    for part, title in PARTS.items():
        texts = [_module(one) for one in modules() if one.part == part]
        yield part, "\n\n".join([f"# {title}: `{package(part)}`", *texts]) + "\n"


@cache
def addresses() -> dict[str, str]:
    """The link to each public name, such as `api.md#clearhead.api.model.Model`, by every unique way of naming it."""
    found: list[tuple[str, str]] = []
    for one in modules():
        for node in one.public:
            place = f"{one.part}.md#{one.name}.{node.name}"
            found += [(name, place) for name in (node.name, f"{one.name}.{node.name}")]
            for method in _methods(node) if isinstance(node, ast.ClassDef) else ():
                if ast.get_docstring(method):
                    found.append((f"{node.name}.{method.name}", f"{place}.{method.name}"))
    times = Counter(name for name, _ in found)
    return {name: place for name, place in found if times[name] == 1}


def _module(one: Module) -> str:
    """The public names of a module."""
    texts = [f"## {one.name}", prose(ast.get_docstring(one.tree))]
    for node in one.public:
        texts += _class(node, one.name) if isinstance(node, ast.ClassDef) else _function(node, one.name, "###")
    if rows := [*_constants(one.tree)]:
        texts.append("\n".join(["| constant | |", "|---|---|", *rows]))
    return "\n\n".join(texts)


def _methods(node: ast.ClassDef) -> list[Function]:
    return [one for one in node.body if isinstance(one, Function) and not one.name.startswith("_")]


def _class(node: ast.ClassDef, module: str) -> Iterator[str]:
    made = next((one for one in node.body if isinstance(one, Function) and one.name == "__init__"), None)
    bases = f"({', '.join(map(ast.unparse, node.bases))})" if node.bases else ""
    yield f"### {node.name} {{ #{module}.{node.name} }}"
    calls = f"\n{node.name}{_arguments(made)}" if made else ""
    yield f"```python\nclass {node.name}{bases}{calls}\n```"
    yield prose(ast.get_docstring(node))
    if made is not None and (said := ast.get_docstring(made)):
        yield prose(said)
    if rows := list(_fields(node)):
        yield "\n".join(["| field | type | default | |", "|---|---|---|---|", *rows])
    plain = [one for one in _methods(node) if not ast.get_docstring(one)]
    for one in _methods(node):
        if one not in plain:
            yield from _function(one, f"{module}.{node.name}", "####")
    if plain:
        yield "```python\n" + "\n".join(_signature(one) for one in plain) + "\n```"


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """Annotated fields with the docstring that follows them."""
    for one, said in _described(node.body):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and not one.target.id.startswith("_"):
            default = f"`{ast.unparse(one.value)}`" if one.value is not None else ""
            yield _row(f"`{one.target.id}`", f"`{ast.unparse(one.annotation)}`", default, prose(said))


def _constants(tree: ast.Module) -> Iterator[str]:
    """Public constants that a docstring follows."""
    for one, said in _described(tree.body):
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        for target in targets:
            if said and isinstance(target, ast.Name) and not target.id.startswith("_"):
                yield _row(f"`{target.id}`", prose(said))


def _described(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Each statement with the text that follows it, as a docstring of a constant or a field does."""
    for one, after in zip(body, [*body[1:], None], strict=True):
        value = after.value if isinstance(after, ast.Expr) else None
        yield one, value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _row(*cells: str) -> str:
    row = " | ".join(" ".join(cell.replace("|", "&#124;").split()) for cell in cells)
    return f"| {row} |".replace("`&#124;", "&#124;")


def _function(node: Function, owner: str, level: str) -> Iterator[str]:
    yield f"{level} {node.name} {{ #{owner}.{node.name} }}"
    yield f"```python\n{_signature(node)}\n```"
    yield prose(ast.get_docstring(node))


def _signature(node: Function) -> str:
    return f"{node.name}{_arguments(node)}{' -> ' + ast.unparse(node.returns) if node.returns else ''}"


def _arguments(node: Function) -> str:
    inside = ast.unparse(node.args)
    return f"({re.sub(r'^(self|cls)(, /)?(, |$)', '', inside)})"


def prose(text: str | None) -> str:
    """A docstring as Markdown: nothing in it is markup but its code spans, and those that name something link to it."""
    pieces = re.split(r"(`[^`]*`)", text or "")
    return "".join(
        _linked(piece) if piece.startswith("`") else re.sub(r"([*<\[\]#])", _escaped, piece) for piece in pieces
    )


def _linked(span: str) -> str:
    place = addresses().get(span.strip("`").removesuffix("()"))
    return span if place is None else f"[{span}]({place})"


def _escaped(found: re.Match[str]) -> str:
    return {"<": "&lt;"}.get(found[1], f"\\{found[1]}")
