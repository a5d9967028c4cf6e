"""The recipe that a command line gives: by name or file, from a table or a folder of pictures, with changed fields.

Imports no torch.
"""

import json
import shlex
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from clearhead import recipe as recipes
from clearhead.data.archives import archive_of
from clearhead.data.containers import contents_of
from clearhead.data.file_contents import Contents, Decision
from clearhead.data.guessing import COLUMNS, NOTHING, Guess, guess, is_table, table_of
from clearhead.data.tables import format_of
from clearhead.errors import UserError, pasted
from clearhead.recipe import Recipe
from clearhead.recipe.places import Place, absolute, place
from clearhead.session.decisions import show
from clearhead.tasks.registry import field_names, fields_of, find, validate
from clearhead.tasks.task import Files, Given

OPTIONS = ("source", "target", "text", "data", "text_pair", "label", "valid_source", "valid_target", "valid_text")
OPTIONS += ("valid_data", "test_data", "out", "page", "skip_bad", "live", "tensorboard")
OPTIONS += ("dry_run", "json")
FORMS = {"tagged": "tagging", "squad": "question_answering", "text": "lm", "image_folder": "image_classification"}
"""The recipe for each form of data other than tables."""
KINDS = {"tagged": "words with their tags", "squad": "questions with contexts and answers", "text": "running text"}
KINDS |= {"image_folder": "pictures with their classes"}


@dataclass(frozen=True)
class Plan:
    """What a command line asks for."""

    recipe: Recipe
    decisions: list[Decision]
    """What was guessed of the data."""
    command: str
    """The command line that says all of it."""


def recipe_of(recipe: str, changes: Sequence[str], *, is_told: bool = False, **asked: Any) -> Recipe:
    """The recipe of `plan`. `is_told` says whether to print what is guessed."""
    made = plan(recipe, changes, **asked)
    if is_told:
        show(made.decisions)
    return made.recipe


def print_plan(made: Plan, *, as_json: bool) -> None:
    """Shows the decisions on standard error, and prints the command line, or both as one JSON object."""
    task = Decision("task", made.recipe.task.replace("_", " "), "the recipe says so", "clearhead train RECIPE")
    decisions = made.decisions or [task]
    if as_json:
        print(json.dumps({"decisions": [asdict(one) for one in decisions], "command": made.command}))
        return
    show(decisions)
    print(made.command)


def plan(
    recipe: str,
    changes: Sequence[str],
    *,
    short: Mapping[str, object],
    files: Mapping[str, Given],
    columns: Mapping[str, str | None] | None = None,
) -> Plan:
    """The recipe with the changes of the command line, checked as far as it can be without the data.

    `recipe` is its name, its file, or data to learn from. `files` are those of the options, by split. Raises UserError
    if the data do not show which recipe they are for.
    """
    is_recipe = Path(recipe).suffix == ".toml" or recipe in recipes.installed()
    tables = recipes.read(recipe) if is_recipe else {}
    fields = fields_given(changes, short, options=OPTIONS, tables=tables)
    given = recipes.nested(fields)
    named = {name: column for name, column in (columns or {}).items() if column is not None}
    if is_recipe:
        tables, guessed = with_sources(tables, files, named, given, where=recipe), None
    else:
        guessed = guess_of(recipe, files, named, given)
        tables = recipes.merge(recipes.read(guessed.recipe), {"data": guessed.data})
        taken = {name: value for name, value in given.get("data", {}).items() if name not in COLUMNS}
        given = {**given, "data": taken} if taken else {name: given[name] for name in given if name != "data"}
    tables = recipes.changed(tables, given)
    # A missing file is reported last, because another mistake may be the reason.
    tables, problem = with_files(tables, where=recipe)
    checked = validate(tables, where=recipe)
    if problem:
        raise UserError(f"{recipe}: {problem}")
    if checked.model.start is None:
        from clearhead.api import architecture

        architecture(checked.model, vocab_size=1000)  # Reports mistakes there before anything slow.
    return Plan(checked, guessed.decisions if guessed else [], spelled(recipe, guessed, fields))


def with_sources(
    tables: dict[str, Any],
    files: Mapping[str, Given],
    named: Mapping[str, str],
    given: Mapping[str, Any],
    *,
    where: str,
) -> dict[str, Any]:
    """The tables of a recipe with the files and columns of the options."""
    tables = recipes.merge(tables, {"data": named} if named else {})
    for split, paths in files.items():
        if any(paths.values()):
            prefix, fields = "" if split == "train" else f"{split}-", given.get("data", {}).get(split, {})
            source = source_of(tables, paths, where=where, prefix=prefix, fields=fields)
            tables = recipes.merge(tables, {"data": {split: source}})
    return tables


def source_of(
    tables: Mapping[str, Any], given: Given, *, where: str, prefix: str, fields: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """The table of a source with the files of these options, whose names begin with `prefix`, and these fields."""
    files = replace(find(tables.get("task"), where=f"{where}:task").files, prefix=prefix)
    like = tables.get("data", {}).get("train") if prefix else None
    source = with_absolute_files(source_given(files, given, where=where, like=like, fields=fields), files)
    if prefix and (problem := files.missing(source)):
        raise UserError(f"{where}: {problem}")
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


# --- from data ----------------------------------------------------------------------------------------------------


def guess_of(name: str, files: Mapping[str, Given], columns: Mapping[str, str], given: Mapping[str, Any]) -> Guess:
    """The recipe for a file or folder of data, and its sources. `columns` are those that options name.

    Raises UserError if there is no such file, or if its form is not known.
    """
    path, data = place(name), given.get("data", {})
    others = {split: str(some["data"]) for split, some in files.items() if split != "train" and some.get("data")}
    is_described = bool(data.get("train", {}).get("format"))
    is_there = is_described or not isinstance(path, Path) or path.exists() or archive_of(path) or is_table(name)
    if not is_there:
        recipes.read(name)  # Says what the name may mean.
    contents = Contents("table", {}) if is_described else contents_of(path)
    if contents is None:
        raise UserError(f"{name}: expected data, got a file of another kind; docs/your-data.md lists what can be read")
    if contents.kind != "table":
        guessed = guess_of_form(contents, path, others)
        return replace(guessed, data={**guessed.data, **columns})
    roles = {role: one if isinstance(one, str | Path) else one[0] for role, one in files["train"].items() if one}
    asked = {role: str(value) for role, value in {**roles, **columns}.items()}
    is_file = any(some.get(role) for split, some in files.items() if split != "train" for role in ("source", "text"))
    if "data" in asked or is_file:
        raise UserError(f"{name}: expected columns of the table, got a file; try --text NAME and --label NAME")
    guessed = guess(path, given={**data, **asked, **others})
    source = guessed.data["train"]
    roles = {role: str(source[role]) for role in ("text", "source", "target") if role in source}
    splits = {split: table_of(place(other), roles, given=data.get("train", {})) for split, other in others.items()}
    return replace(guessed, data=guessed.data | splits, decisions=_without(guessed.decisions, others))


def _without(decisions: Sequence[Decision], others: Container[str]) -> list[Decision]:
    """The decisions but those on splits that options give."""
    return [one for one in decisions if one.what not in others]


def guess_of_form(contents: Contents, path: Place, others: Mapping[str, str]) -> Guess:
    """The recipe for data that are not a table, and its sources; `others` gives further splits."""
    recipe = FORMS[contents.kind]
    sources = contents.sources
    for split, other in others.items():
        found = contents_of(place(other))
        if found is None or found.kind != contents.kind:
            raise UserError(f"{other}: expected {KINDS[contents.kind]} as in {path}, got other data; give another file")
        sources = {**sources, split: found.sources["train"]}
    if contents.kind == "text":
        sources = {split: source for split, source in sources.items() if split != "test"}
    told = [Decision("task", recipe.replace("_", " "), KINDS[contents.kind], "clearhead train RECIPE --data PATH")]
    return Guess(recipe, {**sources, **contents.data}, [*told, *_without(contents.decisions, others)])


def spelled(name: str, guessed: Guess | None, others: Sequence[tuple[str, str]]) -> str:
    """The command line with every choice as an option."""
    words, options = ["clearhead", "train", pasted(name)], dict[str, object]()
    if guessed:
        source, data, is_short = (
            guessed.data["train"],
            guessed.data,
            guessed.recipe in ("classification", "translation"),
        )
        if source.get("path", absolute(name)) != absolute(name):
            words[2] = pasted(source["path"])
        if source["kind"] != "table":
            words[2:] = [guessed.recipe]
            options[next(iter(find(guessed.recipe, where=name).files.options)).removeprefix("--")] = name
        elif not is_short:
            words[2:] = [guessed.recipe]
            options |= {"data.train.kind": "table", "data.train.path": source["path"]}
        for field, value in source.items():
            if field not in ("kind", "path", "paths"):
                options[field if field in COLUMNS and is_short else f"data.train.{field}"] = value
        for field, value in data.items():
            if field in COLUMNS and is_short:
                options[field.replace("_", "-")] = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            elif is_short and field in ("valid", "test") and {**source, "path": value.get("path")} == value:
                options[field] = value["path"]
            elif field != "train":
                options[f"data.{field}"] = value
        options = dict(sorted(options.items(), key=lambda one: "." in one[0]))
        others = [(field, value) for field, value in others if field.removeprefix("data.") not in (*COLUMNS, *options)]
    for field, value in {**options, **dict(others)}.items():
        text = shlex.quote(quoted(value) if "." in field else str(value))
        words += [f"--{field}={text}"] if text.startswith("-") else [f"--{field}", text]
    return " ".join(words)


def quoted(value: object) -> str:
    """A value as `--TABLE.FIELD` takes it: text as it is, unless JSON would read it as something else."""
    if isinstance(value, str) and value.isprintable() and recipes.nested([("value", value)])["value"] == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def source_given(
    files: Files, given: Given, *, where: str, like: object = None, fields: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """The table of a source with the files that are given, or nothing if there are none.

    `fields` say how a table is written, as far as the user does. The columns that no option names are those of `like`,
    the table of another source.
    """
    found = files.source(given, where=where)
    if found.get("kind") != "table":
        return found
    columns, path = {name: str(found[name]) for name in files.columns if name in found}, str(found["path"])
    if isinstance(like, Mapping) and like.get("kind") == "table" and format_of(path) != format_of(str(like["path"])):
        columns = {
            role: str(like[role]) for role in ("text", "source", "target") if like.get(role) is not None
        } | columns
    if columns:
        return table_of(place(path), columns, given=fields)
    if isinstance(like, Mapping) and like.get("kind") == "table":
        dropped = "format" if is_table(str(found["path"])) else ""
        return {**{field: value for field, value in like.items() if field != dropped}, **found}
    if files.table["kind"] != "table":
        wanted = " ".join(f"--{files.prefix}{name} NAME" for name in files.columns)
        raise UserError(f"{where}: expected columns of {found['path']}, got none; give {wanted}")
    return found


# --- changes of fields: --training.clip 0.5 ----------------------------------------------------------------------


def tables_given(changes: Sequence[str], short: Mapping[str, object], *, options: Sequence[str]) -> dict[str, Any]:
    """The tables that a command line gives: `short` are options of fields of training, `options` all others."""
    return recipes.nested(fields_given(changes, short, options=options))


def fields_given(
    changes: Sequence[str], short: Mapping[str, object], *, options: Sequence[str], tables: Mapping[str, Any] = NOTHING
) -> list[tuple[str, str]]:
    """The fields that a command line gives, with their values. `tables` are those of the recipe, if it is known."""
    fields = [(f"training.{name}", str(value)) for name, value in short.items() if value is not None]
    return [*fields, *pairs(changes, options=(*options, *short), tables=tables)]


def training_of(changes: Sequence[str], short: Mapping[str, object]) -> dict[str, Any]:
    """The changes to training that a command line gives. Raises UserError for a field of another table."""
    tables = tables_given(changes, short, options=("tensorboard", "json"))
    for name in tables.keys() - {"training"}:
        raise UserError(f"--{name}: expected a field of training, which a run may change; start a new run for others")
    training = tables.get("training", {})
    if not isinstance(training, dict):
        raise UserError(f"--training: expected one of its fields, got {training!r}; try --training.steps")
    return training


def pairs(
    changes: Sequence[str], *, options: Sequence[str], tables: Mapping[str, Any] = NOTHING
) -> list[tuple[str, str]]:
    """`--training.clip 0.5` or `--training.clip=0.5` as (name, value).

    Raises UserError for a name that is neither; `options` are the command's own, one of which may be meant, and
    `tables` those of the recipe, if it is known.
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
            meant = nearest_option(name, options, tables)
            remedy = f"did you mean --{meant}?" if meant else "write a field of the recipe as --TABLE.FIELD VALUE"
            raise UserError(f"--{dashed}: no such option; {remedy}")
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise UserError(f"--{dashed}: expected a value after it, got none; write --{dashed} VALUE")
            value = rest.pop(0)
        result.append((name, value))
    return result


def nearest_option(name: str, options: Sequence[str], tables: Mapping[str, Any]) -> str | None:
    """The option or field that was probably meant, among those of the recipe's task."""
    if not tables:
        return field_names().nearest(name, among=options)
    taken = find(tables.get("task"), where="task").files.columns
    left_out = {"source", "target", "text"} - {*taken}
    known = fields_of(with_files(tables, where="task")[0], where="task")
    return known.nearest(name, among=[one for one in options if one.removeprefix("valid_") not in left_out])
