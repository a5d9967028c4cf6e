"""clearhead: a Transformer you can see through."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearhead.api import Model, load

__version__ = "0.1.0"
__all__ = ["Model", "load"]


def __getattr__(name: str) -> object:
    """The public names, imported when first used: `import clearhead` alone does not import torch."""
    if name in ("Model", "load"):
        with _undisturbed():
            from clearhead import api

        return {"Model": api.Model, "load": api.load}[name]
    raise AttributeError(f"module 'clearhead' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is there, and the public names that are imported when first used."""
    return sorted({*globals(), *__all__})


@contextmanager
def _undisturbed() -> Iterator[None]:
    """What an import makes lives as long as the process: the garbage collector need not look at it, then or later."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()
