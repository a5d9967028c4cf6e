"""The tasks by name. A task's module is imported only when a recipe names it, so this module needs no torch."""

from collections.abc import Mapping
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic.json_schema import models_json_schema

from clearhead.config import ModelConfig
from clearhead.errors import UserError
from clearhead.recipe import Recipe, explain, nearest
from clearhead.recipe.names import Names, Schema, schema_of

if TYPE_CHECKING:
    from clearhead.tasks.task import RecipeTask

TASKS = {
    "translation": "clearhead.tasks.translation:Translation",
    "text_to_text": "clearhead.tasks.text_to_text:TextToText",
    "denoising": "clearhead.tasks.denoising:Denoising",
    "lm": "clearhead.tasks.language_model:LanguageModel",
    "masked_lm": "clearhead.tasks.masked_lm:MaskedLanguageModel",
    "classification": "clearhead.tasks.classification:Classification",
    "embedding": "clearhead.tasks.embedding:Embedding",
    "image_classification": "clearhead.tasks.image_classification:ImageClassification",
    "tagging": "clearhead.tasks.tagging:Tagging",
    "question_answering": "clearhead.tasks.question_answering:QuestionAnswering",
    "chat": "clearhead.tasks.chat:Chat",
}
"""The place of each task's class, by the name in a recipe's field `task`.

A model without a recipe gets the first one that it suits.
"""


def find(name: object, *, where: str) -> "type[RecipeTask[Any]]":
    """The task of this name. Raises UserError, which begins with `where`, if there is none."""
    if not isinstance(name, str) or name not in TASKS:
        known = sorted(TASKS)
        got, remedy = (
            ("none", f"set it to one of {', '.join(known)}") if name is None else (name, nearest(f"{name}", known))
        )
        raise UserError(f"{where}: expected one of {', '.join(known)}, got {got}; {remedy}")
    return resolve_name(TASKS[name])


def suitable(config: ModelConfig, *, where: str, verb: str | None = None) -> "type[RecipeTask[Any]]":
    """The first task that a network with this head does as it is, preferably one with this verb.

    Raises UserError if there is none.
    """
    found = [task for name in TASKS if (task := find(name, where=where)).suits(config)]
    if found:
        return next((task for task in found if task.verb == verb), found[0])
    raise UserError(
        f"{where}: expected a model for one of {', '.join(sorted(TASKS))}, got one with a {config.head.kind} head that"
        " none of them has; train it for one with clearhead train"
    )


def with_verb(verb: str, *, where: str) -> "type[RecipeTask[Any]]":
    """The first task with this verb."""
    return next(task for name in TASKS if (task := find(name, where=where)).verb == verb)


def validate(tables: Mapping[str, Any], *, where: str) -> Recipe:
    """A recipe from its tables. Raises UserError for the first mistake; `where` names the file in it."""
    recipe = find(tables.get("task"), where=f"{where}:task").recipe
    try:
        return recipe.model_validate(dict(tables))
    except ValidationError as error:
        raise UserError(explain(error, where, schema=schema_of(recipe), names=field_names())) from None


def recipe_schema() -> Schema:
    """The JSON Schema of a recipe of any task."""
    recipes = [find(name, where="task").recipe for name in TASKS]
    references, definitions = models_json_schema([(recipe, "validation") for recipe in recipes])
    either = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "clearhead recipe"}
    return {**either, "anyOf": list(references.values()), **definitions}


def field_names() -> Names:
    """The fields of every task's recipe."""
    return _field_names(tuple(TASKS.items()))


@cache
def _field_names(tasks: tuple[tuple[str, str], ...]) -> Names:
    recipes = [schema_of(find(name, where="task").recipe) for name, _ in tasks]
    return Names.of(recipes, schema_of(ModelConfig))
