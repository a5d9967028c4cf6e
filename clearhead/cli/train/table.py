"""Tables on the command line: the recipe for a table of labelled texts, and the source that `--data` gives."""

from collections.abc import Mapping
from typing import Any

from clearhead import recipe as recipes
from clearhead.cli.options import tell
from clearhead.data.guessing import guess, table_of
from clearhead.errors import UserError
from clearhead.recipe.places import absolute, place
from clearhead.tasks.task import Files, Given

RECIPE = "classification"


def table_recipe(
    table: str, files: Mapping[str, Given], columns: Mapping[str, str | None], *, is_told: bool
) -> dict[str, Any]:
    """The tables of a recipe that learns from a table with these columns, of which the text's is among `files`.

    Guesses the other columns, and prints the guesses if `is_told`.
    """
    text = files["train"].get("text")
    others = {split: str(given["data"]) for split, given in files.items() if split != "train" and given.get("data")}
    known = {("train", "text"), *((split, "data") for split in others)}
    if any(paths for split, given in files.items() for name, paths in given.items() if (split, name) not in known):
        raise UserError(f"{table}: expected columns of the table, got a file; try --text NAME and --label NAME")
    found = guess(place(table), text=None if text is None else str(text), **columns)
    for reason in found.reasons if is_told else ():
        tell(reason)
    splits = {split: found.tables["train"] | {"path": absolute(path)} for split, path in others.items()}
    return recipes.merge(recipes.read(RECIPE), {"data": found.tables | splits})


def source_given(files: Files, given: Given, *, where: str, like: object = None) -> dict[str, Any]:
    """The table of a source with the files that are given, or nothing if there are none.

    The columns of a table that no option names are those of `like`, the table of another source.
    """
    found = files.source(given, where=where)
    if found.get("kind") != "table":
        return found
    columns = {name: str(found[name]) for name in files.columns if name in found}
    if columns:
        return table_of(place(str(found["path"])), columns)
    if isinstance(like, Mapping) and like.get("kind") == "table":
        return {**{field: value for field, value in like.items() if field != "format"}, **found}
    if files.table["kind"] != "table":
        wanted = " ".join(f"--{name} NAME" for name in files.columns)
        raise UserError(f"{where}: expected columns of {found['path']}, got none; give {wanted}")
    return found
