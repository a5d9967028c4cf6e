"""`clearhead train TABLE`: the recipe for a table of labelled texts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from clearhead import recipe as recipes
from clearhead.commands import tell
from clearhead.data.guessing import guess
from clearhead.errors import UserError

Given: TypeAlias = Mapping[str, Path | Sequence[Path] | None]
"""Files by the names of their options."""
RECIPE = "classification"


def table_recipe(
    table: str, files: Mapping[str, Given], columns: Mapping[str, str | None], *, is_told: bool
) -> dict[str, Any]:
    """The tables of a recipe that learns from a table with these columns, of which the text's is among `files`.

    Guesses the other columns, and prints the guesses if `is_told`.
    """
    text = files["train"].get("text")
    if any(paths for given in files.values() for name, paths in given.items() if name != "text"):
        raise UserError(f"{table}: expected columns of the table, got a file; try --text NAME and --label NAME")
    found = guess(Path(table), text=str(text) if isinstance(text, Path) else None, **columns)
    for reason in found.reasons if is_told else ():
        tell(reason)
    return recipes.merge(recipes.read(RECIPE), {"data": found.tables})
