"""The addresses of a model, and what of each is one vector for each position of a text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from clearhead.api import Model
from clearhead.config import Continuous
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.model.mode import Evaluating
from clearhead.trace import Address, Trace, nearest, recording

FIXED = frozenset("dhkfve")
"""The axes whose size is the same for every text."""


def smallest(model: Model) -> list[Tokens]:
    """The smallest possible input of each stack."""
    inputs: list[Tokens] = []
    for stack in model.config.stacks.values():
        reads = stack.input
        one = torch.zeros(1, *reads.shape) if isinstance(reads, Continuous) else torch.zeros(1, 1, dtype=torch.long)
        inputs.append(model.here(Tokens(one)))
    return inputs


def every_address(model: Model) -> Trace:
    """A trace of the smallest possible input: every address of the model, with its axes."""
    with Evaluating(model.network), torch.no_grad(), model.tracing() as seen:
        model.network(*smallest(model))
    return seen


@dataclass(frozen=True)
class Site:
    """An address with one vector for each position, or for each text."""

    address: Address
    axes: str
    shape: tuple[int, ...]
    """The shape of one vector."""
    stack: str
    """The stack whose positions it has."""

    @property
    def path(self) -> str:
        """The address without its indices."""
        return self.address.path

    @cached_property
    def index(self) -> dict[str, int]:
        """The indices by axis."""
        return dict(self.address.index)

    @property
    def letter(self) -> str | None:
        """The axis of its positions: t, or s where there is no t; None for one vector for each text."""
        return next((axis for axis in "ts" if axis in self.axes.split()), None)

    @property
    def position(self) -> int | None:
        """The position that its indices choose, counted from a text's end if it is negative."""
        return None if self.letter is None else self.index.get(self.letter)

    @property
    def key(self) -> int | None:
        """The key position that its indices choose, for a value of pairs of positions."""
        return self.index.get("s") if self.letter == "t" else None

    @property
    def group(self) -> str:
        """Sites of one group have the same rows: `decoder`, `decoder[t=-1]`, `text` for one vector for each text."""
        if self.letter is None:
            return "text"
        chosen = [f"{axis}={i}" for axis, i in (("t", self.position), ("s", self.key)) if i is not None]
        return f"{self.stack}[{','.join(chosen)}]" if chosen else self.stack

    def cells(self, value: Tensor) -> Tensor:
        """The value as b t …, or b … for one vector for each text. An index of positions is left to the caller."""
        for axis in reversed(self.axes.split()):
            if axis in self.index and axis != self.letter:
                value = value.select(self.axes.split().index(axis), self.index[axis])
        if self.letter is None:
            return value
        left = [axis for axis in self.axes.split() if axis == self.letter or axis not in self.index]
        return value.movedim(left.index(self.letter), 1)


def sites_of(model: Model, wanted: Sequence[str], *, every: Trace | None = None) -> list[Site]:
    """The sites at these addresses; * stands for any part of a path between dots.

    Raises UserError for an address that the model does not have, and for one whose vectors differ in size.
    """
    if isinstance(wanted, str) or not wanted:
        raise UserError(f"at: expected addresses such as decoder.blocks.*.resid_post, got {wanted or 'none'}")
    seen = every_address(model) if every is None else every
    found: dict[str, Site] = {}
    for text in wanted:
        for address in _matching(text, seen):
            found[str(address)] = _site(model, address, seen)
    return list(found.values())


def _matching(text: str, seen: Trace) -> list[Address]:
    """The addresses that a text names."""
    path, bracket, index = text.partition("[")
    if "*" not in path:
        where = Address.parse(text)
        if where.path not in seen:
            raise UserError(
                f"{where.path}: expected an address of this model{nearest(where.path, seen) or ', got none'}"
            )
        return [where]
    pattern = re.compile(re.escape(path).replace(r"\*", r"[^.]*"))
    found = [Address.parse(one + bracket + index) for one in seen if pattern.fullmatch(one)]
    if not found:
        raise UserError(f"{text}: expected an address of this model, got none{nearest(path.replace('*', '0'), seen)}")
    return found


def _site(model: Model, address: Address, seen: Trace) -> Site:
    axes, shape = seen.axes[address.path], seen[address.path].shape
    index, names = dict(address.index), axes.split()
    letter = next((axis for axis in "ts" if axis in names), None)
    moving = {letter, "s"}  # The smallest input is too short to tell whether a position is there.
    Address(address.path, tuple(one for one in address.index if one[0] not in moving)).slices(axes, shape)
    if unknown := index.keys() - set(names):
        raise UserError(f"{address}: axis {min(unknown)!r} is not one of {axes!r}")
    if "b" in index or names[0] != "b":
        raise UserError(f"{address}: expected a value of each text, got axes {axes}; leave out an index of b")
    rest = [(axis, n) for axis, n in zip(names, shape, strict=True) if axis not in {"b", letter, *index}]
    if not {axis for axis, _ in rest} <= FIXED:
        raise UserError(
            f"{address}: expected vectors of one size for all texts, got axes {axes}; choose one key with [s=0]"
        )
    if letter == "t" and index.get("s", 0) < 0:
        raise UserError(f"{address}: expected a key counted from the beginning, got s={index['s']}; try [s=0]")
    stacks = list(model.config.stacks)
    stack = address.path.split(".")[0]
    of_keys = letter == "s" and ".cross." in address.path
    own = "encoder" if of_keys else stack if stack in stacks else stacks[-1]
    return Site(address, axes, tuple(n for _, n in rest), own)


def needs_explicit(model: Model, sites: Sequence[Site]) -> bool:
    """Whether only the explicit forms of ops have these values. Fused kernels hide all that has both t and s."""
    paths = {site.path for site in sites}
    if any({"t", "s"} <= set(site.axes.split()) for site in sites):
        return True
    with Evaluating(model.network), torch.no_grad(), recording(model.network, paths) as seen:
        model.network(*smallest(model))
    return len(seen) < len(paths)
