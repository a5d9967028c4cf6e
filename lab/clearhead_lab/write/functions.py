"""The functions of `clearhead lab write`, from functions.toml: heads, hidden inputs, right ways and wrong ways."""

import random
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial, reduce
from math import inf
from operator import itemgetter
from pathlib import Path
from textwrap import indent
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import BaseModel
from torch import Tensor


class Function(BaseModel):
    """A function that the learner writes. Right and wrong ways are expressions of its parameters."""

    name: str
    head: str
    doc: str
    draw: dict[str, str]
    """An expression that draws each parameter."""
    right: str
    wrong: list[tuple[str, str, str]]
    """Name, expression and sentence of each wrong way."""
    speed: bool = False
    """Python's work must not grow with the sizes b, t and s."""
    gradient: bool = True
    rows: list[str] = []
    """Parameters whose rows are independent of each other."""
    causal: list[str] = []
    """Parameters whose later positions change no earlier result."""

    def written(self, text: str) -> Callable[..., Any]:
        """An expression as a function of the parameters."""
        return evaluate(f"lambda {', '.join(self.draw)}: {text}", names())

    def inputs(self, seed: int, *, times: int = 1) -> list[Any]:
        """The hidden inputs of a seed. The sizes b, t and s are multiplied by `times`."""
        rng = random.Random(f"{self.name} {seed}")
        torch.manual_seed(rng.randrange(1 << 30))
        h, k = rng.choice((2, 3)), rng.choice((2, 4))
        sizes = {"b": rng.choice((2, 3)) * times, "t": rng.choice((3, 4, 5)) * times, "s": rng.choice((4, 6)) * times}
        drawn = {
            **names(), **sizes, "h": h, "k": k, "d": h * k, "f": h * k + 3, "v": 9,
            "rng": rng,
        }  # fmt: skip
        return [evaluate(text, drawn) for text in self.draw.values()]


class Functions(BaseModel):
    """The whole of functions.toml."""

    intro: str
    general: dict[str, str]
    names: dict[str, str]
    function: list[Function]


@cache
def functions() -> Functions:
    """What functions.toml says."""
    return Functions.model_validate(tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")))


@cache
def names() -> dict[str, Any]:
    """What expressions may name: PyTorch, the names of functions.toml, and each function as the library computes it."""
    known: dict[str, Any] = {
        "torch": torch, "F": F, "inf": inf, "Counter": Counter, "partial": partial, "reduce": reduce, "beams": beams,
        "normal": torch.randn, "uniform": torch.rand, "integers": lambda n, *shape: torch.randint(n, shape),
    }  # fmt: skip
    for name, text in functions().names.items():
        known[name] = evaluate(text, known)
    for function in functions().function:
        known[function.name] = evaluate(f"lambda {', '.join(function.draw)}: {function.right}", known)
    return known


def evaluate(text: str, known: dict[str, Any]) -> Any:
    """The value of an expression of functions.toml."""
    return eval(text, known)  # noqa: S307


def file_text() -> str:
    """The file that the learner fills."""
    text = functions().intro
    for one in functions().function:
        doc = indent(f'"""{one.doc}\n"""' if "\n" in one.doc else f'"""{one.doc}"""', "    ")
        text += f"\n\ndef {one.name}({one.head}:\n{doc}\n    raise NotImplementedError\n"
    return text


def beams(
    step: Callable[[list[int]], Tensor],
    start: int,
    end: int,
    limit: int,
    n: int,
    alpha: float,
    *,
    score: Callable[[Tensor], Tensor] | None = None,
    uncounted: int = 0,
    unfinished: bool = True,
) -> Sequence[int]:
    """The text of the largest sum of scores / length^alpha, as beam_search in functions.toml describes it."""
    score = score or partial(torch.log_softmax, dim=-1)
    going, finished = [(list[int](), 0.0)], list[tuple[list[int], float]]()
    for _ in range(limit):
        grown = [
            ([*ids, i], total + more)
            for ids, total in going
            for i, more in enumerate(score(step([start, *ids])).tolist())
        ]
        best = sorted(grown, key=itemgetter(1), reverse=True)[:n]
        finished += [one for one in best if one[0][-1] == end]
        going = [one for one in best if one[0][-1] != end]
        if not going:
            break
    among = finished + going if unfinished or not finished else finished
    ids, _ = max(among, key=lambda one: one[1] / max(1, len(one[0]) - uncounted * (one[0][-1] == end)) ** alpha)
    return [i for i in ids if i != end]
