"""`clearhead recipes`."""

import json
from itertools import takewhile
from pathlib import Path

from clearhead.recipe import recipe_folders


def recipes_command(*, as_schema: bool) -> None:
    """Print the recipes that are known by name, or the JSON Schema of all recipes."""
    if as_schema:
        from clearhead.tasks.registry import recipe_schema

        print(json.dumps(recipe_schema(), indent=2))
        return
    files = {file.stem: file for folder in recipe_folders() for file in sorted(folder.glob("*.toml"))}
    width = max(map(len, files), default=0) + 2
    for name, file in sorted(files.items()):
        about, *lines = comment(file)
        print(f"{name:<{width}}{about}", *(f"{'':<{width}}{line}" for line in lines), sep="\n")


def comment(file: Path) -> list[str]:
    """The lines of the comment at the beginning of a recipe file."""
    lines = takewhile(lambda line: line.startswith("#"), file.read_text(encoding="utf-8").splitlines())
    return [line.lstrip("#").strip() for line in lines] or [""]
