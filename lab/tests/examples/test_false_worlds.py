"""Each record's check says otherwise where its inputs or the parts are such that it should."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Tokens
from clearhead_lab.examples.records import records
from clearhead_lab.examples.statements import compute
from clearhead_lab.examples.verdicts import COMPUTED, judge

World = Callable[[dict[str, Any]], dict[str, Any]]
"""What stands in a record's module instead of its own parts."""


def noise(positions: Any, width: int) -> Tensor:
    return torch.randn(len(list(positions)), width, dtype=torch.float64)


def costs(power: int) -> World:
    """FLOPs that grow with a power of the length."""
    part = lambda n: [SimpleNamespace(component="attention", cost=SimpleNamespace(flops=n**power))]  # noqa: E731
    return lambda _: {"cost": SimpleNamespace(parts=lambda _, n, *__, **___: part(n))}


def narrow(_: dict[str, Any]) -> dict[str, Any]:
    """A preset whose hidden layer is narrower than the model."""
    return {"preset": lambda _: SimpleNamespace(output=SimpleNamespace(d_ff=64, d_model=512))}


def unscaled(m: dict[str, Any]) -> dict[str, Any]:
    return {"scores_of": lambda q, k, attn_scale=1.0: m["scores_of"](q, k, attn_scale=1.0)}


def swapped(m: dict[str, Any]) -> dict[str, Any]:
    """Pre-norm for post-norm."""
    other = {"pre": "post", "post": "pre"}
    return {"residual": lambda x, f, place: m["residual"](x, f, other[place])}


class PerPixel:
    """A BatchNorm with a mean for each pixel."""

    def __init__(self, n: int) -> None:
        self.running_mean = torch.zeros(n, 5, 5)

    def __call__(self, x: Tensor) -> Tensor:
        return x


INPUTS: dict[str, dict[str, Any]] = {
    "s0-04": {"W_Q_eq14": [64, 512]},
    "s0-07": {"d_k": 16},
    "s0-18": {"W": [[0.28, 0.42, 0.3], [0.31, 0.33, 0.36], [0.33, 0.35, 0.32]]},
    "s0-24": {"perm": [0, 1, 2, 3]},
    "s0-46": {"z": [[1.0, 2.0, 3.0]] * 5},
    "s0-61": {"presets": ["gpt2"]},
    "s0-62": {"presets": ["transformer-base"]},
    "s0-63": {"d_head": 2},
    "s1-31": {"d": 2},
    "s1-35": {"d": 64},
    "s1-37": {"d_ff": 16},
    "s2-19": {"k": [[1.0, 0.0], [0.1, 0.1]]},
    "s3-16": {"positions": [3, 3, 47]},
    "s3-25": {"row": [7, 2, 1, 7, 3]},
    "s4-30": {"preset": "bert-base"},
    "s4-33": {"asked": [105, 106]},
}
PARTS: dict[str, World] = {
    "s0-40": lambda _: {"weights_of": lambda scores: torch.tensor(scores).softmax(0)},
    "s0-41": lambda m: {"stack": lambda *a, **how: m["stack"](*a, **how, bias=True)},
    "s0-49": swapped,
    "s0-52": lambda _: {"residual": lambda x, f: f(x)},
    "s0-54": unscaled,
    "s0-55": narrow,
    "s0-56": lambda _: {"Tokens": SimpleNamespace(pad=lambda rows: Tokens.pad([[1] * sum(map(len, rows))]))},
    "s0-60": lambda _: {"attention_flops": lambda _, heads: heads},
    "s1-25": lambda m: {"small_decoder": lambda: m["small_decoder"](input=c.TokenInput(vocab_size=100))},
    "s1-29": lambda m: {
        "Transformer": lambda config: m["Transformer"](config.model_copy(update={"head": c.LanguageHead(tied=False)}))
    },
    "s1-30": lambda m: {"_activated": lambda x, _: m["_activated"](x, "relu")},
    "s1-32": narrow,
    "s1-37": lambda _: {
        "set_weight": lambda linear, weight: setattr(linear.weight, "data", weight.reshape(linear.weight.shape))
    },
    "s2-17": lambda _: {"chain": lambda _: {"weights": torch.eye(4)[[3, 3, 3, 3]][None, None]}},
    "s3-03": unscaled,
    "s3-09b": lambda _: {"attention_flops": lambda _, heads: 8 // heads},
    "s3-27": lambda _: {"nn": SimpleNamespace(BatchNorm2d=PerPixel)},
    "s3-28": lambda _: {"attend": lambda rows, **_: {"z": rows[None, None]}},
    "s3-29": lambda _: {"encoding": noise},
    "s3-30": costs(2),
    "s3-31": costs(1),
    "s4-28": lambda _: {"encoding": noise},
}
STATEMENTS = [name for name, one in records().items() if isinstance(judge(one).ours, str) and not one.lost]


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_can_hold_and_fail(name: str):
    one = records()[name]
    if one.claim:
        said = {false: compute(one, {}, false=false) for false in (False, True)}
        assert {false: told.holds for false, told in said.items()} == {False: False, True: True}, said
        return
    module: Any = import_module(COMPUTED[name].__module__)
    parts = PARTS[name](vars(module).copy()) if name in PARTS else {}
    with patch.dict(vars(module), parts):
        said = judge(replace(one, inputs=one.inputs | INPUTS.get(name, {}))).verdict
    assert {said, one.verdict} == {"reproduces", "wrong"}


@pytest.mark.parametrize("name", [name for name in records() if name not in STATEMENTS])
def test_only_our_numbers_reproduce(name: str):
    one, ours = records()[name], judge(records()[name]).ours
    if one.lost or one.printed is None:
        return
    assert isinstance(ours, list)
    assert ours
    assert judge(replace(one, printed=ours)).verdict == "reproduces"
    step = 1 if one.decimals is None else (one.slack + 0.1) * 10.0**-one.decimals
    for i in range(len(ours)):
        assert judge(replace(one, printed=[*ours[:i], ours[i] + step, *ours[i + 1 :]])).verdict == "wrong"
