"""Each step of the arithmetic as data: an `Op` names its inputs and its result, its `Kind` defines what it computes.

A part of the network lists its steps beside its `forward`. From them follow, by kind of op: the recomputation of a
recorded value, what the page explains, FLOPs, and the numbers that the backward pass needs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Self

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clearhead.brief import brief
from clearhead.config import Config
from clearhead.errors import UserError


class Op(Config):
    """out = op(inputs, weights): one step. An untapped value has an address too, but is not stored."""

    out: str
    op: str
    """A name in `KINDS`."""
    inputs: tuple[str, ...] = ()
    """Addresses, or `STACK.ids`, `.types` and `.positions`, the whole numbers that a stack reads."""
    weights: tuple[str, ...] = ()
    """Names of parameters, a matrix before its bias."""
    by: dict[str, float] = Field(default_factory=dict[str, float])
    """Settings by name, such as a norm's eps."""
    how: str = ""
    """The function of an activation, the name of a mask, how states are pooled, the layout of sines."""
    numbers: tuple[float, ...] = ()
    """Frequencies of a rotation, slopes of a bias."""


class Mask(Config):
    """The open cells: all, with `causal` only keys up to the query, with `window` only keys closer than that."""

    causal: bool = False
    window: int | None = None


@dataclass(frozen=True)
class Call:
    """An op with the values of its inputs and weights, for one sequence: no batch axis."""

    __repr__ = brief

    op: Op
    x: list[Tensor]
    w: list[Tensor]
    mask: Mask | None = None


@dataclass(frozen=True, eq=False)
class Sizes:
    """The shape of a tensor and the width of its numbers."""

    shape: tuple[int, ...]
    width: int = 4
    """Bytes of each number; 0 for whole numbers, which are not counted."""
    shared: bool = False
    """True if all sequences of a batch share the tensor."""

    @property
    def n_bytes(self) -> int:
        return prod(self.shape) * self.width


@dataclass
class Sized:
    """An op with the sizes of its inputs and weights."""

    op: Op
    x: list[Sizes]
    w: list[tuple[int, ...]]
    out: Sizes = field(default_factory=lambda: Sizes(()))


SavedSizes = Callable[[Sized], Iterable[Sizes]]


def no_values(_: Sized) -> Iterable[Sizes]:
    """The backward pass needs nothing."""
    return ()


def its_inputs(call: Sized) -> Iterable[Sizes]:
    """The backward pass needs the op's inputs."""
    return call.x


def its_result(call: Sized) -> Iterable[Sizes]:
    """The backward pass needs the op's result."""
    return (call.out,)


def one_more(call: Sized) -> Iterable[Sizes]:
    """The backward pass needs a tensor of the result's shape that has no address."""
    return (replace(call.out),)


def product_flops(call: Sized) -> int:
    """2 for each term of a product over the last axis of the first input."""
    return 2 * prod(call.out.shape) * call.x[0].shape[-1]


def same_shape(call: Sized) -> tuple[int, ...]:
    """The shape of the first input."""
    return call.x[0].shape


def widest(call: Sized) -> int:
    """The width of the widest input; that of float32 if the op reads only weights."""
    return max((x.width for x in call.x), default=0) or 4


@dataclass(frozen=True)
class Kind:
    """The arithmetic and the cost of ops of one kind."""

    evaluate: Callable[[Call], Tensor]
    shape: Callable[[Sized], tuple[int, ...]] = same_shape
    """The shape of the result."""
    saves: SavedSizes = no_values
    """The tensors that autograd keeps; weights are not counted."""
    flops: Callable[[Sized], int] | None = None
    """FLOPs of a matrix product, which autocast computes in bfloat16; None for other ops, which are not counted."""
    width: Callable[[Sized], int] = widest
    """Bytes of each number of the result."""
    is_view: bool = False
    """True if the result is the first input itself, if their widths are equal."""

    def sizes(self, call: Sized) -> Sizes:
        """The sizes of the result."""
        width = self.width(call)
        return call.x[0] if self.is_view and width == call.x[0].width else Sizes(self.shape(call), width)


class Kinds(dict[str, Kind]):
    """Kinds by name. Raises UserError if another module already defines a kind of this name."""

    def __setitem__(self, name: str, kind: Kind) -> None:
        before, by = self.get(name), kind.evaluate.__module__
        if before is not None and before.evaluate.__module__ != by:
            at = f"{by}: expected a new name for a kind of op, got {name!r}"
            raise UserError(f"{at}, which {before.evaluate.__module__} defines; try {f'{by}.{name}'!r}")
        super().__setitem__(name, kind)

    def __ior__(self, kinds: Mapping[str, Kind]) -> Self:  # pyrefly: ignore[bad-override]
        for name, kind in kinds.items():
            self[name] = kind
        return self


KINDS = Kinds()
"""Every kind by its name. The file of a mechanism adds the kinds that only it needs."""


def is_own(op: Op) -> bool:
    """Returns True if the library itself defines this kind of op and its function, not another package."""
    return (op.op != "activation" or "." not in op.how) and KINDS[op.op].evaluate.__module__.startswith("clearhead.")


def only_sized(call: Call) -> Tensor:
    """Takes the place of the arithmetic of ops that are listed for their sizes alone, and are never evaluated."""
    raise AssertionError(f"{call.op.out}: {call.op.op} is not evaluated")


def _linear(call: Call) -> Tensor:
    return F.linear(call.x[0], call.w[0], call.w[1] if len(call.w) > 1 else None)


KINDS |= {
    "copy": Kind(lambda call: call.x[0], is_view=True),
    "add": Kind(lambda call: call.x[0] + call.x[1]),
    "scale": Kind(lambda call: call.x[0] * call.op.by["factor"]),
    "multiply": Kind(lambda call: call.x[0] * call.x[1], saves=its_inputs),
    "soft_cap": Kind(lambda call: call.op.by["cap"] * (call.x[0] / call.op.by["cap"]).tanh(), saves=one_more),
    "linear": Kind(_linear, lambda call: (*call.x[0].shape[:-1], call.w[0][0]), its_inputs, product_flops),
    "dropout": Kind(only_sized, saves=one_more),
    "cast": Kind(only_sized, width=lambda call: call.x[1].width, is_view=True),
}


@dataclass
class Steps:
    """Collects the ops of a network in the order in which they run."""

    training: bool = False
    """True to list dropout, which only training applies."""
    explicit: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """True to list attention step by step (the default), False for one op of a fused kernel; by the stack of
    the keys' states."""
    pictures: bool = False
    """True to list the ops of a picture within the text too."""
    selective: bool = False
    """True if training computes again what is quick to compute (`model/fast/activation_checkpointing.py`)."""
    ops: list[Op] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    """The module that each op belongs to, by its path."""
    masks: dict[str, Mask] = field(default_factory=dict)
    """Masks by the names that the ops use."""
    states: list[str] = field(default_factory=list)
    """The last states of each stack."""
    _at: str = ""

    @contextmanager
    def inside(self, path: str) -> Iterator[None]:
        """While open, ops belong to the module at `path`."""
        before, self._at = self._at, path
        try:
            yield
        finally:
            self._at = before

    def do(
        self, out: str, op: str, *inputs: str, weights: tuple[str, ...] = (), how: str = "",
        numbers: tuple[float, ...] = (), by: dict[str, float] | None = None,
    ) -> str:  # fmt: skip
        """Adds one op; returns `out`. Raises UserError if `KINDS` has no such op."""
        if op not in KINDS:
            raise UserError(f"{out}: expected a kind of op in clearhead.model.ops.KINDS, got {op!r}; add it there")
        self.ops.append(Op(out=out, op=op, inputs=inputs, weights=weights, how=how, numbers=numbers, by=by or {}))
        self.owners.append(self._at)
        return out

    def named(self, out: str) -> str:
        """Renames the last op's result to the address at which it is tapped; returns the address."""
        self.ops[-1] = self.ops[-1].model_copy(update={"out": out})
        return out

    def linear(self, out: str, x: str, linear: nn.Module, path: str) -> str:
        """x W^T + b, of the linear map at `path`."""
        return self.do(out, "linear", x, weights=parameters(linear, path))

    def dropout(self, x: str, rate: float, *, out: str = "") -> str:
        """x with some of its numbers set to 0 in training; otherwise x itself."""
        return self.do(out or f"{x}.dropped", "dropout", x, by={"rate": rate}) if self.training and rate else x

    def capped(self, out: str, x: str, cap: float | None) -> str:
        """cap tanh(x / cap); x itself without a cap."""
        return x if cap is None else self.do(out, "soft_cap", x, by={"cap": cap})


class Deriving(ABC):
    """A module with tensors that follow from its parameters alone, and that ops read as if they were parameters."""

    @property
    @abstractmethod
    def derived(self) -> dict[str, Tensor]:
        """The tensors by name, which are attributes too."""


def op_weights(network: nn.Module) -> dict[str, Tensor]:
    """The tensors that ops read, by name: parameters, and what follows from them, such as 1 + a norm's weight."""
    found: dict[str, Tensor] = dict(network.named_parameters(remove_duplicate=False))
    for path, module in network.named_modules():
        if isinstance(module, Deriving):
            found |= {f"{path}.{name}": tensor.detach() for name, tensor in module.derived.items()}
    return found


def parameters(module: nn.Module, path: str) -> tuple[str, ...]:
    """The names of a module's weight and, if it has one, its bias."""
    return (f"{path}.weight", f"{path}.bias") if getattr(module, "bias", None) is not None else (f"{path}.weight",)
