"""clearhead: a Transformer you can see through."""

import os

from clearhead.version import __version__ as __version__

TYPE_CHECKING = False  # As typing has it. The command line imports this first, before Ctrl-C is taken care of.
if TYPE_CHECKING:
    from clearhead.api import Model, TwoTowerModel, load, load_towers
    from clearhead.session.run import Run, compare, start, train

__all__ = ["Model", "Run", "TwoTowerModel", "compare", "load", "load_towers", "start", "train"]
SPINS = "10000"
"""How often a thread of PyTorch looks for work before it sleeps (GOMP_SPINCOUNT; 300,000 by default), unless the
environment says it. On a machine that others use, threads that look for long keep those from the processor that they
wait for. OpenMP reads it when torch is imported: import clearhead first."""
if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = SPINS
OF_RUNS = ("Run", "compare", "start", "train")


def __getattr__(name: str) -> object:
    """The public names, imported when first used: `import clearhead` alone does not import torch."""
    if name not in __all__:
        raise AttributeError(f"module 'clearhead' has no attribute {name!r}")
    import gc
    from importlib import import_module

    # What an import makes lives as long as the process: the garbage collector need not look at it, then or later.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        module = import_module("clearhead.session.run" if name in OF_RUNS else "clearhead.api")
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()
    return getattr(module, name)


def __dir__() -> list[str]:
    """The module's names, and the public names that are imported when first used."""
    return sorted({*globals(), *__all__})
