"""Each check says so in a world where what it checks is false: other parts, or a network that has not learned.

A check that passes in the world as it is and in every other one, because both of its sides are at their limit, or alike
by their form, or computed from each other, is found here.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from typing import Any
from unittest.mock import patch

import pytest
import torch

from clearhead import config as c
from clearhead.lab import learning
from clearhead.lab.experiment import Check, Figures, Row
from clearhead.lab.experiments import experiment
from clearhead.model.attention import Attention

World = Callable[[Any], dict[str, Any]]
"""What stands in an experiment's module instead of its own parts."""
UNTRAINED: World = lambda m: {  # noqa: E731
    "learn": lambda network, batch, **_: learning.learn(network, batch, steps=2),
    **({"BLOCKS": 1} if hasattr(m, "BLOCKS") else {}),
}


def all_right(m: Any) -> dict[str, Any]:
    """A network that always answers right."""
    fakes: dict[str, Any] = {"accuracy": lambda *_: 1.0, "final": lambda _: 0.0}
    return UNTRAINED(m) | {name: fake for name, fake in fakes.items() if hasattr(m, name)}


def late(slow: int) -> World:
    """Losses that fall below every limit at once, and for the network of this width later."""

    def losses(network: Any, *_: object, **__: object) -> list[float]:
        return [9.0] * (20 if network.last_stack.table.weight.shape[1] == slow else 1) + [0.0]

    return lambda _: {"learn": losses}


class Apart:
    """An attention whose fused kernel gives something else."""

    def __init__(self, config: c.StackConfig) -> None:
        self.real, self.kernel = Attention(config), "explicit"

    def __call__(self, x: torch.Tensor, *rest: Any) -> torch.Tensor:
        return self.real(x, *rest) + (self.kernel == "fused")


class Elsewhere:
    """A rotation whose angle also depends on the place."""

    def __init__(self, *_: object) -> None: ...

    def rotation(self, at: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: x * at.flatten()[:, None].float()


def by_place(positions: list[int], width: int) -> torch.Tensor:
    """Another random vector for each position."""
    return torch.stack([torch.randn(width, generator=torch.Generator().manual_seed(p + 500)) for p in positions])


def nearer(positions: list[int], width: int) -> torch.Tensor:
    """Vectors whose product with that of position p + k falls with k."""
    at = torch.tensor(positions, dtype=torch.float64)
    return torch.stack([at.sub(5000).mul(i / 9e4).cos() for i in range(1, 1 + width)], 1)


def scaled(factor: float) -> World:
    return lambda m: {"scores_of": lambda q, k, **how: factor * m.REAL["scores_of"](q, k, **how)}


def inverted(m: Any) -> dict[str, Any]:
    real = m.REAL["through"]
    return {"through": lambda blocks, x, *, residual, **how: real(blocks, x, residual=not residual, **how)}


def fading(m: Any) -> dict[str, Any]:
    """Blocks that add nothing, and pass a third of the gradient."""

    def through(blocks: Any, x: torch.Tensor, **_: object) -> Iterator[torch.Tensor]:
        for _ in blocks.last_stack.blocks:
            x = x / 3 + x.detach() * 2 / 3
            yield x

    return {"through": through}


def still(m: Any) -> dict[str, Any]:
    """Blocks that add nothing."""
    return {"through": lambda blocks, x, **_: iter([x * 1.0 for _ in blocks.last_stack.blocks])}


WORLDS: dict[str, tuple[World, ...]] = {
    "order-blindness": (
        lambda m: (
            UNTRAINED(m) | {"KINDS": {name: (build, c.Sinusoidal()) for name, (build, _) in m.REAL["KINDS"].items()}}
        ),
        all_right,
    ),
    "position-shift": (
        lambda _: {"encoding": by_place, "RotaryEncoding": Elsewhere},
        lambda _: {"encoding": nearer, "rotary_products": lambda *_: torch.zeros(3)},
    ),
    "add-or-join": (
        lambda m: late(32)(m) | {"accuracy": lambda *_: 1.0, "KINDS": widths(m, 32, 64)},
        lambda m: late(64)(m) | {"KINDS": widths(m, 64, 32, 64)},
        lambda m: late(32)(m) | {"KINDS": widths(m, 32, 44, 64)},
    ),
    "saturation": (scaled(0.01), scaled(100.0), all_right),
    "norm-padding": (lambda m: {"NORMS": dict(zip(m.REAL["NORMS"], reversed(m.REAL["NORMS"].values()), strict=True))},),
    "residual-ablation": (inverted, still, fading),
    "quadratic-cost": (
        lambda _: {"reckoned": lambda n, **_: (n, n)},
        lambda _: {"reckoned": lambda n, **_: (n * n, n * n)},
        lambda _: {"Attention": Apart},
    ),
    "weight-tying": (
        lambda m: UNTRAINED(m) | {"mean_loss": lambda *_: torch.tensor(0.0)},
        lambda m: (
            UNTRAINED(m)
            | {"decoder": lambda *a, head, **how: learning.decoder(*a, head=c.LanguageHead(tied=not head.tied), **how)}
        ),
        lambda m: (
            UNTRAINED(m) | {"mean_loss": lambda network, *_: torch.tensor(9.0 if network.config.head.tied else 0.0)}
        ),
    ),
}
"""Worlds of each experiment, beside the world as it is."""


def widths(m: Any, *wide: int) -> dict[str, tuple[int, int, int]]:
    """The kinds of vectors in other widths."""
    kinds = [*m.REAL["KINDS"]]
    return dict(zip(kinds, [(width, 16, 16) for width in (*wide, 32)[: len(kinds)]], strict=True))


SLOW = ("saturation", "order-blindness", "quadratic-cost")


def figures(name: str, world: World) -> Figures:
    one = experiment(name)
    module: Any = import_module(one.measure.__module__)
    module.REAL = vars(module).copy()
    torch.manual_seed(0)
    with ExitStack() as stack:
        for part, fake in world(module).items():
            stack.enter_context(patch.object(module, part, fake))
        rows: list[Row] = list(one.measure(0, True))
    return Figures(rows)


def outcomes(name: str) -> Iterator[tuple[Check, set[bool]]]:
    """What each check says in the worlds of its experiment."""
    plain: World = UNTRAINED if hasattr(import_module(experiment(name).measure.__module__), "learn") else lambda _: {}
    found = [figures(name, world) for world in (plain, *WORLDS[name])]
    for check in experiment(name).checks:
        yield check, {check.passes(check.figure(one)) for one in found}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in WORLDS]
)
def test_every_check_can_fail_and_pass(name: str) -> None:
    assert {check.what: seen for check, seen in outcomes(name) if seen != {True, False}} == {}
