"""The settings of generation that a command or a task asks for."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from clearhead.errors import UserError
from clearhead.recipe import explain
from clearhead.recipe.generation import GenerationConfig

BEAMS = 5
"""Width of the search for a translation where neither the user nor the model sets one."""


def changed(config: GenerationConfig, changes: Mapping[str, Any]) -> GenerationConfig:
    """The settings with these changes. Raises UserError for a contradiction."""
    try:
        return GenerationConfig.model_validate(config.model_dump() | dict(changes))
    except ValidationError as error:
        raise UserError(explain(error, "generation")) from None


def searching(config: GenerationConfig, search: Mapping[str, Any]) -> GenerationConfig:
    """A search for translations: the settings that `search` gives, else the model's own, else five beams."""
    given = {name: value for name, value in search.items() if value is not None}
    narrowing = {"temperature": 0.0, "top_k": None, "top_p": None, "min_p": None, "n_best": 1}
    return changed(config, {**narrowing, "beams": config.beams if config.beams > 1 else BEAMS, **given})
