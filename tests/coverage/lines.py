"""How many lines of Python a model type takes."""

import pkgutil
from collections import Counter
from inspect import getsource
from pkgutil import resolve_name
from statistics import median

import clearhead.checkpoints.families as package
from clearhead.checkpoints.families import FAMILIES, families


def a_type() -> tuple[float, float]:
    """The lines of a type's file, shared by the types that it holds, in the middle of all types; and the lines of files
    that hold none, such as what families share, a type.
    """
    held = Counter[str]()
    for place in FAMILIES.values():
        found = resolve_name(place)
        held[place.partition(":")[0]] += len(found) if isinstance(found, tuple) else 1
    each, others = list[float](), 0
    for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        n_lines = getsource(resolve_name(one.name)).count("\n")
        if n := held[one.name]:
            each += [n_lines / n] * n
        else:
            others += n_lines
    assert len(each) == len(families())
    return median(each), others / len(each)
