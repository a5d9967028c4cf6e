"""`clearhead train FOLDER`: the recipe for a folder of pictures by class."""

from pathlib import Path
from typing import Any

from clearhead import recipe as recipes
from clearhead.cli.options import tell
from clearhead.data.image_sets import classes_of, is_image_folder, splits_in

RECIPE = "image_classification"


def is_picture_folder(name: str) -> bool:
    """Whether a name is that of a folder of pictures, and not of a recipe that is installed."""
    path = Path(name)
    return path.is_dir() and is_image_folder(splits_in(path)["train"])


def folder_recipe(folder: Path, *, is_told: bool) -> dict[str, Any]:
    """The tables of a recipe that learns from a folder of pictures. Prints how the folders are interpreted."""
    found = splits_in(folder)
    names = [path.name for path in classes_of(found["train"])]
    if is_told:
        some = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
        tell(f"task: image classification (a folder of pictures for each of {len(names)} classes: {some})")
        for split, path in found.items() if len(found) > 1 else ():
            tell(f"{split}: {path}")
    data = {split: {"kind": "image_folder", "path": str(path.absolute())} for split, path in found.items()}
    return recipes.merge(recipes.read(RECIPE), {"data": data})
