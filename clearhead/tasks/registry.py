"""The tasks by name. A task's module is imported only when a recipe names it, so this module needs no torch."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic.json_schema import models_json_schema

from clearhead.config import ModelConfig
from clearhead.errors import UserError
from clearhead.extensions import load_extension, parts
from clearhead.recipe import Recipe, explain, nearest
from clearhead.recipe.names import Names, Schema, schema_of

if TYPE_CHECKING:
    from clearhead.tasks.task import RecipeTask

TASKS = {
    "translation": "clearhead.tasks.translation:Translation",
    "text_to_text": "clearhead.tasks.translation:TextToText",
    "denoising": "clearhead.tasks.denoising:Denoising",
    "lm": "clearhead.tasks.language_model:LanguageModel",
    "masked_lm": "clearhead.tasks.masked_lm:MaskedLanguageModel",
    "classification": "clearhead.tasks.classification.task:Classification",
    "embedding": "clearhead.tasks.embedding:Embedding",
    "image_classification": "clearhead.tasks.images.task:ImageClassification",
    "tagging": "clearhead.tasks.tagging.task:Tagging",
    "question_answering": "clearhead.tasks.question_answering.task:QuestionAnswering",
    "chat": "clearhead.tasks.chat:Chat",
    "captions": "clearhead.tasks.images.captions:Captioning",
}
"""The place of each task's class, by the name in a recipe's field `task`; extensions add theirs.

A model without a recipe gets the first one that it suits.
"""


def find(name: object, *, where: str) -> "type[RecipeTask[Any]]":
    """The task of this name. Raises UserError, which begins with `where`, if there is none."""
    known = parts("tasks", TASKS)
    if not isinstance(name, str) or name not in known:
        names = ", ".join(sorted(known))
        remedy = f"set it to one of {names}" if name is None else nearest(f"{name}", sorted(known))
        raise UserError(f"{where}: expected one of {names}, got {'none' if name is None else name}; {remedy}")
    return load_extension("tasks", name, known[name])


def every_task() -> "Iterator[type[RecipeTask[Any]]]":
    """Every task, those of this package first."""
    return (find(name, where="task") for name in parts("tasks", TASKS))


def suitable(config: ModelConfig, *, where: str, verb: str | None = None) -> "type[RecipeTask[Any]]":
    """The first task that a network with this head does as it is, preferably one with this verb.

    Raises UserError if there is none.
    """
    tasks = [task for task in every_task() if task.suits(config)]
    if tasks:
        return next((task for task in tasks if task.verb == verb), tasks[0])
    raise UserError(
        f"{where}: expected a model for one of {', '.join(sorted(parts('tasks', TASKS)))}, got one with a"
        f" {config.head.kind} head that none of them has; train it for one with clearhead train"
    )


def validate(tables: Mapping[str, Any], *, where: str) -> Recipe:
    """A recipe from its tables. Raises UserError for the first mistake; `where` names the file in it."""
    recipe = find(tables.get("task"), where=f"{where}:task").recipe
    try:
        return recipe.model_validate(dict(tables))
    except ValidationError as error:
        raise UserError(explain(error, where, schema=schema_of(recipe), names=fields_of(tables, where=where))) from None


def recipe_schema() -> Schema:
    """The JSON Schema of a recipe of any task."""
    references, schema = models_json_schema([(task.recipe, "validation") for task in every_task()])
    either = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "clearhead recipe"}
    return {**either, "anyOf": list(references.values()), **schema}


def field_names() -> Names:
    """The fields of every task's recipe."""
    return _field_names(tuple(task.recipe for task in every_task()))


def fields_of(tables: Mapping[str, Any], *, where: str) -> Names:
    """The fields that the recipe with these tables can set. Raises UserError if its task is not known."""
    recipe = find(tables.get("task"), where=f"{where}:task").recipe
    return Names.of([schema_of(recipe)], schema_of(ModelConfig), given=tables)


@cache
def _field_names(recipes: tuple[type[Recipe], ...]) -> Names:
    return Names.of([*map(schema_of, recipes)], schema_of(ModelConfig))
