"""The reference of the Python API: one page for each part of the package, from its docstrings, without an import."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "clearhead"
PARTS = {
    "api": "Models",
    "trace": "Trace",
    "config": "Architectures",
    "model": "The network",
    "analysis": "Analysis",
    "generation": "Generation",
    "recipe": "Recipes",
    "data": "Data",
    "tasks": "Tasks",
    "training": "Training",
    "batch": "Batches",
    "lab": "The lab",
}
"""The parts with a page, and its title."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def pages() -> Iterator[tuple[str, str]]:
    """The name and the Markdown of every page."""
    for part, title in PARTS.items():
        folder, file = PACKAGE / part, PACKAGE / f"{part}.py"
        files = sorted(folder.rglob("*.py")) if folder.is_dir() else [file]
        modules = [text for one in files if (text := module(one))]
        yield part, "\n\n".join([f"# {title}: `clearhead.{part}`", *modules]) + "\n"


def module(file: Path) -> str:
    """The public names of a module; empty if it has none of its own."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    name = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    found = [
        text
        for node in tree.body
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_")
        for text in (_class(node, name) if isinstance(node, ast.ClassDef) else _function(node, name, "###"))
    ]
    if not found or any(part.startswith("_") for part in name.split(".")):
        return ""
    return "\n\n".join([f"## {name}", prose(ast.get_docstring(tree)), *found])


def _class(node: ast.ClassDef, module: str) -> Iterator[str]:
    made = next((one for one in node.body if isinstance(one, Function) and one.name == "__init__"), None)
    yield f"### {node.name} {{ #{module}.{node.name} }}"
    yield f"```python\nclass {node.name}{_arguments(made) if made else ''}\n```"
    yield prose(ast.get_docstring(node))
    if made is not None and (said := ast.get_docstring(made)):
        yield prose(said)
    if rows := list(_fields(node)):
        yield "\n".join(["| field | type | default | |", "|---|---|---|---|", *rows])
    for one in node.body:
        if isinstance(one, Function) and not one.name.startswith("_") and ast.get_docstring(one):
            yield from _function(one, f"{module}.{node.name}", "####")


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """Annotated fields with the docstring that follows them."""
    for one, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name) or one.target.id.startswith("_"):
            continue
        value = after.value if isinstance(after, ast.Expr) else None
        said = value.value if isinstance(value, ast.Constant) else ""
        default = f"`{ast.unparse(one.value)}`" if one.value is not None else ""
        cells = (f"`{one.target.id}`", f"`{ast.unparse(one.annotation)}`", default, prose(str(said)))
        yield f"| {' | '.join(' '.join(cell.replace('|', '&#124;').split()) for cell in cells)} |".replace(
            "`&#124;", "&#124;"
        )


def _function(node: Function, owner: str, level: str) -> Iterator[str]:
    if not (said := ast.get_docstring(node)):
        return
    yield f"{level} {node.name} {{ #{owner}.{node.name} }}"
    yield f"```python\n{node.name}{_arguments(node)}{' -> ' + ast.unparse(node.returns) if node.returns else ''}\n```"
    yield prose(said)


def _arguments(node: Function) -> str:
    arguments = node.args
    inside = ast.unparse(arguments)
    return f"({re.sub(r'^(self|cls)(, |$)', '', inside)})"


def prose(text: str | None) -> str:
    """A docstring as Markdown: nothing in it is markup but its code spans."""
    pieces = re.split(r"(`[^`]*`)", text or "")
    return "".join(piece if piece.startswith("`") else re.sub(r"([*<\[\]#])", _escaped, piece) for piece in pieces)


def _escaped(found: re.Match[str]) -> str:
    return {"<": "&lt;"}.get(found[1], f"\\{found[1]}")
