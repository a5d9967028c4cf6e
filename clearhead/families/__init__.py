"""Named architectures: each family is data, one file a family. Imports no torch."""

from difflib import get_close_matches

from clearhead.config import ModelConfig
from clearhead.errors import UserError
from clearhead.families import bert, gpt2, llama, small, transformer, vit

__all__ = ["preset", "presets"]


def presets() -> dict[str, ModelConfig]:
    """Every preset by name."""
    return transformer.PRESETS | bert.PRESETS | gpt2.PRESETS | llama.PRESETS | vit.PRESETS | small.PRESETS


def preset(name: str) -> ModelConfig:
    """The preset of this name; raises UserError with the nearest name where there is none."""
    known = presets()
    if name not in known:
        nearest = get_close_matches(name, known, n=1)
        remedy = nearest[0] if nearest else f"one of {', '.join(sorted(known))}"
        raise UserError(f"preset: expected the name of an architecture, got {name!r}; try {remedy}")
    return known[name]
