"""clearhead: a Transformer you can see through."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearhead.api import Model, load

__version__ = "0.1.0"
__all__ = ["Model", "load"]


def __getattr__(name: str) -> object:
    """The public names, imported when first used: `import clearhead` alone does not import torch."""
    if name in ("Model", "load"):
        from clearhead import api

        return {"Model": api.Model, "load": api.load}[name]
    raise AttributeError(f"module 'clearhead' has no attribute {name!r}")
