"""The data on which a model is measured: files, or the recipe's data."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.recipe import Recipe
from clearhead.recipe.data import Source
from clearhead.runs import task_of
from clearhead.session.recipes import source_given
from clearhead.tasks.task import Evaluation, Given, RecipeTask

_source: TypeAdapter[Source] = TypeAdapter(Source)


@dataclass(frozen=True)
class Measuring:
    """How a model is measured: its task, its data, and the options of its scores."""

    task: type[RecipeTask[Any]]
    recipe: Recipe | None
    source: Source | None
    """None for the data of the recipe."""
    options: Mapping[str, Any]
    where: str
    """The name of the data."""

    @classmethod
    def of(cls, model: Model, files: Given, options: Mapping[str, Any], *, name: str) -> Self:
        """Raises UserError, which begins with `name`, for files and options that the model's task does not have."""
        task, recipe = task_of(name, model)
        table = source_given(task.files, files, where=name, like=dict(recipe.data.train) if recipe else None)
        if (wrong := task.files.missing(table)) or (not table and recipe is None):
            raise UserError(f"{name}: {wrong or task.files.wrong(())}")
        source = _source_of(table, where=name) if table else None
        for option in options.keys() - set(task.measures):
            raise UserError(f"--{option.replace('_', '-')}: expected a model of another task, got {name}; leave it out")
        where = " and ".join(map(str, source.files)) if source else own_data(recipe)
        return cls(task, recipe, source, options, where)

    def evaluation(self, model: Model) -> Evaluation:
        """The scores of the model."""
        return self.task.measure(model, self.recipe, self.source, self.options)


def _source_of(table: Mapping[str, Any], *, where: str) -> Source:
    """The source of a table. Raises UserError if it lacks columns, which a model without a recipe does not know."""
    try:
        return _source.validate_python(table).under(Path())
    except ValidationError as error:
        if table.keys() & {"source", "target", "text"}:
            raise UserError(f"{where}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
        raise UserError(
            f"{where}: expected the columns of {table.get('path')}, got none;"
            " give --text NAME, or --source NAME and --target NAME"
        ) from None


def own_data(recipe: Recipe | None) -> str:
    """The data on which a model is measured if no files are given."""
    named = recipe.data.sources if recipe else ()
    names = {"test": "its test data", "valid": "its validation data"}
    return next((words for name, words in names.items() if name in named), "data held out from its training")
