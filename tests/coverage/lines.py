"""How many lines of Python a model type takes."""

import pkgutil
from importlib import import_module
from inspect import getsource
from statistics import median

from clearhead.checkpoints import families
from clearhead.checkpoints.families import FAMILIES, Family


def a_type() -> tuple[float, float]:
    """The lines of a type's file, shared by the types that it holds, in the middle of all types; and the lines of files
    that hold none, such as what families share, a type.
    """
    each, others = list[float](), 0
    for one in pkgutil.walk_packages(families.__path__, f"{families.__name__}."):
        module = import_module(one.name)
        source = getsource(module)
        held = [name for name, value in vars(module).items() if isinstance(value, Family) and f"\n{name} = " in source]
        n_lines = source.count("\n")
        each += [n_lines / len(held) for _ in held]
        others += 0 if held else n_lines
    assert len(each) == len(FAMILIES)
    return median(each), others / len(each)
