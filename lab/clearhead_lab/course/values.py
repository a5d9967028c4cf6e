"""What a page computes, printed or not: a summary of every value is kept in course/values and compared at each build.

So a changed digit in a block is noticed where no output shows what it changes, too.
"""

import json
import math
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue
from torch import Tensor

FOLDER = Path(__file__).resolve().parent / "values"
Values = dict[str, JsonValue]
"""What one part of a page computes: a summary by the name of a variable, or by the place of a number in the prose."""
CLOSE, FLOOR = 1e-4, 1e-6
"""Relative and absolute difference that another processor's rounding may make."""
LONGEST = 60
"""Characters of a text that is kept as it is."""


class _NoValues(Exception):
    """An object that is not made of numbers and texts."""


def summary(value: object) -> JsonValue:
    """A number or a short text as it is. Of many numbers: how many, their root mean square, and a sum.

    Each number has a weight of its own in the sum, so that an exchange of two is noticed. None for other objects.
    """
    try:
        leaves = np.concatenate([np.zeros(0), *_leaves(value)])
    except _NoValues:
        return None
    if isinstance(value, bool | int) or (isinstance(value, str) and len(value) <= LONGEST):
        return value
    if isinstance(value, float) or (isinstance(value, Tensor) and value.numel() == 1):
        return _short(leaves[0])
    weighted = leaves @ np.cos(np.arange(1, 1 + len(leaves)))
    n = len(leaves)
    return [n, _short(float(leaves @ leaves / max(1, n)) ** 0.5), _short(float(weighted) / max(1, n) ** 0.5)]


def _short(x: float) -> float:
    return float(f"{x:.6g}")


def _leaves(value: object) -> Iterator[NDArray[np.float64]]:
    match value:
        case Tensor():
            yield _finite(value.detach().double().flatten().numpy())
        case np.ndarray():
            yield _finite(value.astype(np.float64).ravel())
        case bool() | int() | float():
            yield _finite(np.array([float(value)]))
        case str():
            yield np.array([zlib.crc32(value.encode()) / 2**32])
        case Mapping() if type(value).__module__ in ("builtins", "collections"):
            yield from _leaves([*value.keys(), *value.values()])
        case set() | frozenset():
            yield from _leaves(sorted(map(repr, value)))
        case list() | tuple():
            for one in value:
                yield from _leaves(one)
        case _:
            raise _NoValues


def _finite(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.nan_to_num(x, nan=50.0, posinf=100.0, neginf=-100.0)


def variables(space: Mapping[str, object]) -> Values:
    """The summaries of a page's variables that are made of numbers and texts."""
    found = {name: summary(value) for name, value in space.items() if not name.startswith("_")}
    return {name: value for name, value in found.items() if value is not None}


def same(a: JsonValue, b: JsonValue) -> bool:
    """True if two summaries are of the same value, up to rounding."""
    if isinstance(a, list) and isinstance(b, list):
        (n, *sizes), (m, *others) = ([float(str(x)) for x in one] for one in (a, b))
        scale = max(sizes[0], others[0])
        return n == m and all(
            math.isclose(x, y, rel_tol=0, abs_tol=CLOSE * scale + FLOOR) for x, y in zip(sizes, others, strict=True)
        )
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=CLOSE, abs_tol=FLOOR)
    return type(a) is type(b) and a == b


def differences(found: Values, expected: Values) -> Iterator[str]:
    """A line for each value that is not what it was."""
    for name in sorted(found.keys() | expected.keys()):
        if name not in found or name not in expected or not same(found[name], expected[name]):
            yield f"{name} is {found.get(name, 'not there')}, and was {expected.get(name, 'not there')}"


def read(name: str) -> list[Values]:
    """The values of a page as they were accepted, one entry for each part that computes. Empty for a new page."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


def write(name: str, values: list[Values]) -> None:
    """Accepts the values of a page: a line for each part, so that a change shows which."""
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in values)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
