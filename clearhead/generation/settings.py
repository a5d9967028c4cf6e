"""The settings of generation that a command or a task asks for."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from clearhead.errors import UserError
from clearhead.recipe import explain
from clearhead.recipe.generation import GenerationConfig

BEAMS = 5
"""Width of the search for a translation where neither the user nor the model sets one."""

NARROWING: dict[str, Any] = {"top_k": None, "top_p": None, "min_p": None}
"""The settings that narrow sampling, as they are without sampling."""
IN_PLACE = {"max_new_tokens": "max_length", "min_new_tokens": "min_length"}
"""Settings that replace the model's own length with the prompt."""
GREEDY: dict[str, Any] = {"beams": 1, "n_best": 1, "temperature": 0.0, **NARROWING}


def changed(config: GenerationConfig, changes: Mapping[str, Any]) -> GenerationConfig:
    """The settings with these changes. Several beams replace sampling, and sampling replaces them.

    Raises UserError for an unknown name, a wrong value or a contradiction.
    """
    if not changes:
        return config
    base = config.model_dump()
    base |= {whole: None for new, whole in IN_PLACE.items() if changes.get(new) is not None}
    if changes.get("beams") not in (None, 1) or changes.get("temperature") == 0:
        base |= GREEDY
    elif changes.get("temperature") is not None:
        base["beams"] = 1
    try:
        return GenerationConfig.model_validate(base | dict(changes))
    except ValidationError as error:
        raise UserError(explain(error, "generation")) from None


def searching(config: GenerationConfig, search: Mapping[str, Any]) -> GenerationConfig:
    """A search for translations: the settings that `search` gives, else the model's own, else five beams."""
    given = {name: value for name, value in search.items() if value is not None}
    return changed(config, {**GREEDY, "beams": config.beams if config.beams > 1 else BEAMS, **given})
