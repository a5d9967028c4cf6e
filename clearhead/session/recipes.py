"""The recipe that a command line gives: by name or file, from a table or a folder of pictures, with changed fields.

Imports no torch.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead import recipe as recipes
from clearhead.data.guessing import guess, is_table, table_of
from clearhead.errors import UserError
from clearhead.progress import tell
from clearhead.recipe import Recipe
from clearhead.recipe.places import absolute, place
from clearhead.tasks.images.data import classes_of, is_image_folder, splits_in
from clearhead.tasks.registry import field_names, find, validate
from clearhead.tasks.tagging.data import is_conll
from clearhead.tasks.task import Files, Given

OPTIONS = ("source", "target", "text", "data", "text_pair", "label", "valid_source", "valid_target", "valid_text")
OPTIONS += ("valid_data", "test_data", "out", "page", "skip_bad", "live", "tensorboard", "json")


def recipe_of(
    recipe: str,
    changes: Sequence[str],
    *,
    short: Mapping[str, object],
    files: Mapping[str, Given],
    columns: Mapping[str, str | None] | None = None,
    is_told: bool = False,
) -> Recipe:
    """The recipe with the changes of the command line, checked as far as it can be without the data.

    `files` are those of the options, by split. `is_told` says whether to print what is guessed of a table.
    """
    if is_table(recipe):
        tables = table_recipe(recipe, files, columns or {}, is_told=is_told)
    elif is_picture_folder(recipe):
        tables = folder_recipe(Path(recipe), is_told=is_told)
    else:
        if is_conll(recipe):
            files, recipe = {**files, "train": {**files["train"], "data": Path(recipe)}}, "tagging"
        named = {name: column for name, column in (columns or {}).items() if column is not None}
        tables = recipes.merge(recipes.read(recipe), {"data": named} if named else {})
        for split, given in files.items():
            if any(given.values()):
                source = source_of(tables, given, where=recipe, prefix="" if split == "train" else f"{split}-")
                tables = recipes.merge(tables, {"data": {split: source}})
    tables = recipes.changed(tables, tables_given(changes, short, options=OPTIONS))
    # A missing file is reported last, because another mistake may be the reason.
    tables, problem = with_files(tables, where=recipe)
    checked = validate(tables, where=recipe)
    if problem:
        raise UserError(f"{recipe}: {problem}")
    if checked.model.start is None:
        from clearhead.api import architecture

        architecture(checked.model, vocab_size=1000)  # Reports mistakes there before anything slow.
    return checked


def source_of(tables: Mapping[str, Any], given: Given, *, where: str, prefix: str) -> dict[str, Any]:
    """The table of a source with the files of these options, whose names begin with `prefix`."""
    files = find(tables.get("task"), where=f"{where}:task").files
    try:
        like = tables.get("data", {}).get("train") if prefix else None
        source = with_absolute_files(source_given(files, given, where=where, like=like), files)
        if prefix and (problem := files.missing(source)):
            raise UserError(f"{where}: {problem}")
    except UserError as error:
        raise UserError(str(error).replace("--", f"--{prefix}")) from None
    return source


def with_absolute_files(source: Mapping[str, Any], files: Files) -> dict[str, Any]:
    """The source with its files relative to the working directory, not to the recipe's folder."""
    fields = ["path"] if source.get("kind") == "table" else [*files.options.values()]

    def whole(value: str | Sequence[str]) -> str | list[str]:
        return absolute(value) if isinstance(value, str) else [absolute(one) for one in value]

    return {name: whole(value) if name in fields else value for name, value in source.items()}


def with_files(tables: Mapping[str, Any], *, where: str) -> tuple[dict[str, Any], str]:
    """The tables, with placeholders if data files are missing, and an error message or ""."""
    data, files = tables.get("data"), find(tables.get("task"), where=f"{where}:task").files
    problem = files.missing(data.get("train") if isinstance(data, Mapping) else None)
    return recipes.merge(tables, {"data": {"train": files.table}} if problem else {}), problem


# --- from a table or a folder of pictures ------------------------------------------------------------------------


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
    return recipes.merge(recipes.read("classification"), {"data": found.tables | splits})


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
    return recipes.merge(recipes.read("image_classification"), {"data": data})


# --- changes of fields: --training.clip 0.5 ----------------------------------------------------------------------


def tables_given(changes: Sequence[str], short: Mapping[str, object], *, options: Sequence[str]) -> dict[str, Any]:
    """The tables that a command line gives: `short` are options of fields of training, `options` all others."""
    fields = [(f"training.{name}", str(value)) for name, value in short.items() if value is not None]
    return recipes.nested([*fields, *pairs(changes, options=(*options, *short))])


def training_of(changes: Sequence[str], short: Mapping[str, object]) -> dict[str, Any]:
    """The changes to training that a command line gives. Raises UserError for a field of another table."""
    tables = tables_given(changes, short, options=("tensorboard", "json"))
    for name in tables.keys() - {"training"}:
        raise UserError(f"--{name}: expected a field of training, which a run may change; start a new run for others")
    training = tables.get("training", {})
    if not isinstance(training, dict):
        raise UserError(f"--training: expected one of its fields, got {training!r}; try --training.steps")
    return training


def pairs(changes: Sequence[str], *, options: Sequence[str]) -> list[tuple[str, str]]:
    """`--training.clip 0.5` or `--training.clip=0.5` as (name, value).

    Raises UserError for a name that is neither; `options` are the command's own, one of which may be meant.
    """
    result: list[tuple[str, str]] = []
    rest = list(changes)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise UserError(f"{word}: expected a field such as --training.clip, got a value; write --FIELD VALUE")
        dashed, equals, value = word[2:].partition("=")
        name = dashed.replace("-", "_")
        if name.partition(".")[0] not in field_names().tables:
            meant = field_names().nearest(name, among=options)
            remedy = f"did you mean --{meant}?" if meant else "write a field of the recipe as --TABLE.FIELD VALUE"
            raise UserError(f"--{dashed}: no such option; {remedy}")
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise UserError(f"--{dashed}: expected a value after it, got none; write --{dashed} VALUE")
            value = rest.pop(0)
        result.append((name, value))
    return result
