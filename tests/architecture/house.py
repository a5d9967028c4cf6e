"""`python -m tests.architecture.house [--write | --draw]`: the size and shape of the house, and its limits.

Tokens are Python's own, without comments, docstrings and line ends: long lines hide lines, not tokens.
"""

import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.architecture.source import PACKAGE, ROOT, Source, sources

LIMITS = Path(__file__).with_name("house.toml")
ENDS = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
SKIPPED = ENDS | {tokenize.COMMENT}
UPWARD = "explore"
"""`Model.explore` opens the explorer: the one function that imports upward."""
SPARE = 1.02
"""How much a package may grow before its limit is set anew, which a commit then says."""


def tokens(path: Path) -> int:
    """The tokens of a file that a reader must read as code."""
    source = path.read_text(encoding="utf-8")
    alone = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr))
    texts = (node for node in alone if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str))
    skipped = {line for node in texts for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    found = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(token.type not in SKIPPED and token.start[0] not in skipped for token in found)


def packages() -> dict[str, int]:
    """Tokens of each room, of the modules beside them, and of all tests."""
    sizes = Counter[str]()
    for source in sources():
        is_alone = source.path.parent == ROOT / PACKAGE
        sizes["beside" if is_alone else room(source.module)] += tokens(source.path)
    tests = [path for folder in ("tests", "lab/tests") for path in (ROOT / folder).rglob("*.py")]
    return dict(sorted(sizes.items())) | {"tests": sum(map(tokens, tests))}


def folders() -> dict[str, int]:
    """Modules of each folder."""
    return dict(sorted(Counter(str(source.path.parent.relative_to(ROOT)) for source in sources()).items()))


def edges(*, with_types: bool) -> dict[str, set[str]]:
    """The modules that each module imports, also inside functions, but for the one upward import."""
    known = {source.module for source in sources()}
    return {
        source.module: set(_imported(source, known, with_types=with_types)) - {source.module} for source in sources()
    }


def _imported(source: Source, known: set[str], *, with_types: bool) -> Iterable[str]:
    for item in source.imports:
        whole = f"{item.module}.{item.name}"
        if item.function == UPWARD and whole.startswith(f"{PACKAGE}.explorer."):
            continue
        if (with_types or not item.for_types_only) and {whole, item.module} & known:
            yield whole if whole in known else item.module


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Sets of nodes that reach each other."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        reached[start], todo = set(), [start]
        while todo:
            new = graph[todo.pop()] - reached[start]
            reached[start] |= new
            todo += new
    return {frozenset(m for m in reached[n] if n in reached[m]) for n in graph if n in reached[n]}


BASE = ("brief", "errors", "extensions", "randomness", "json_text", "progress", "version", "__main__", "")
"""What every room may import is left out of the drawing."""


def room(module: str) -> str:
    """`clearhead.model.block` -> `model`; the lab is one room."""
    parts = module.split(".")
    return ".".join(parts[1:2]) if parts[0] == PACKAGE else "lab"


def rooms() -> dict[str, set[str]]:
    """The rooms that each room imports, without those that it reaches through another."""
    graph: dict[str, set[str]] = {}
    for module, names in edges(with_types=False).items():
        graph.setdefault(room(module), set()).update(map(room, names))
    graph = {name: own - {name, *BASE} for name, own in graph.items() if name not in BASE}
    return {name: {to for to in own if not any(to in below(graph, by) for by in own)} for name, own in graph.items()}


def below(graph: dict[str, set[str]], name: str) -> set[str]:
    """All that a room reaches."""
    found, todo = set[str](), [name]
    while todo:
        new = graph[todo.pop()] - found
        found |= new
        todo += new
    return found


def drawing() -> str:
    """The rooms and what they stand on, in Mermaid's language."""
    arrows = sorted(f"  {name} --> {to}" for name, own in rooms().items() for to in own)
    return "\n".join(["flowchart TD", *arrows])


def shape() -> dict[str, int]:
    """The largest folder, the largest circles of imports, and the modules that one other module imports."""
    graph = edges(with_types=True)
    importers = Counter(name for names in graph.values() for name in names)
    return {
        "files_of_the_largest_folder": max(folders().values()),
        "files_of_the_largest_circle": max((len(one) for one in circles(edges(with_types=False))), default=0),
        "files_of_the_largest_circle_with_types": max((len(one) for one in circles(graph)), default=0),
        "modules_with_one_importer": sum(importers[name] == 1 for name in graph),
        "modules": len(graph),
    }


def limits() -> dict[str, dict[str, int]]:
    return tomllib.loads(LIMITS.read_text(encoding="utf-8"))


def main() -> None:
    sizes, figures = packages(), shape()
    if "--write" in sys.argv:
        spare = {name: -(-int(size * SPARE) // 10) * 10 for name, size in sizes.items()}
        tables = {"tokens": spare, "shape": figures}
        lines = ["# What must not grow back. `python -m tests.architecture.house --write` sets it to today's figures."]
        for title, table in tables.items():
            lines += ["", f"[{title}]", *(f'"{name}" = {number}' for name, number in table.items())]
        LIMITS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if "--draw" in sys.argv:
        print(drawing())
        return
    for name, number in {**sizes, "product": sum(sizes.values()) - sizes["tests"], **figures}.items():
        print(f"{number:9,}  {name}")


if __name__ == "__main__":
    main()
