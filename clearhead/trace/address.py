"""Addresses of values, and the effect of an edit on the value at an address."""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Real

import torch
from torch import Tensor

from clearhead.errors import UserError


@dataclass(frozen=True)
class Address:
    """The address of a value: `decoder.blocks.3.attn.weights[h=2,t=0]`, with optional indices on axes."""

    path: str
    index: tuple[tuple[str, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Parses an address. Raises UserError if the text is not an address."""
        if not isinstance(text, str):
            raise UserError(f"address: expected text such as decoder.blocks.0.attn.weights, got {type(text).__name__}")
        match = re.fullmatch(r"([A-Za-z_][\w.]*)(?:\[([^\]]*)\])?", text.strip())
        if match is None:
            raise UserError(f"{text!r}: expected an address such as decoder.blocks.0.attn.weights[h=2]")
        index: list[tuple[str, int]] = []
        for part in filter(None, (match[2] or "").split(",")):
            pair = re.fullmatch(r"\s*([a-z])\s*=\s*(-?\d+)\s*", part)
            if pair is None:
                raise UserError(f"{text!r}: expected an index such as h=2, got {part.strip()!r}")
            if pair[1] in dict(index):
                raise UserError(f"{text!r}: expected one index of axis {pair[1]}, got two; leave one of them out")
            index.append((pair[1], int(pair[2])))
        return cls(match[1], tuple(index))

    def __str__(self) -> str:
        inside = ",".join(f"{axis}={i}" for axis, i in self.index)
        return f"{self.path}[{inside}]" if inside else self.path

    def slices(self, axes: str, shape: torch.Size) -> tuple[int | slice, ...]:
        """The index into a value with these axes. Raises UserError for an axis or index that it does not have."""
        names = axes.split()
        result: list[int | slice] = [slice(None)] * len(names)
        for axis, i in self.index:
            if axis not in names:
                raise UserError(f"{self}: axis {axis!r} is not one of {axes!r}")
            dimension = names.index(axis)
            if not -shape[dimension] <= i < shape[dimension]:
                raise UserError(f"{self}: {axis}={i} is outside 0..{shape[dimension] - 1}")
            result[dimension] = i
        return tuple(result)

    def of(self, value: Tensor, axes: str) -> Tensor:
        """The value itself, so that its gradient can be kept, or the part that the indices select."""
        return value[self.slices(axes, value.shape)] if self.index else value


@dataclass(frozen=True, eq=False)
class ByRow:
    """Edit: separate edits for each copy of a batch. The copies follow one another."""

    each: Sequence[Sequence[tuple[Address, "Edit"]]]


Edit = Tensor | float | Callable[[Tensor], Tensor] | ByRow


def zero(value: Tensor) -> Tensor:
    """Edit: all zeros."""
    return torch.zeros_like(value)


def mean(value: Tensor) -> Tensor:
    """Edit: the mean over the last axis."""
    return value.mean(-1, keepdim=True).expand_as(value)


def add(change: Tensor) -> Callable[[Tensor], Tensor]:
    """Edit: the value plus `change`, d, at all positions. Raises UserError for a value of another width."""

    def added(value: Tensor) -> Tensor:
        if value.shape[-1] != change.shape[-1]:
            raise UserError(f"add: expected a value of width {change.shape[-1]}, got {value.shape[-1]}")
        return value + change.to(value)

    return added


def scale(factor: float) -> Callable[[Tensor], Tensor]:
    """Edit: the value times `factor`."""
    return lambda value: value * factor


def apply(value: Tensor, address: Address, edit: Edit, axes: str) -> Tensor:
    """The value with an edit of the part that the address selects. Raises UserError if the edit does not fit."""
    if isinstance(edit, ByRow):
        copies = list(value.chunk(len(edit.each)))
        for i, own in enumerate(edit.each):
            for where, one in own:
                copies[i] = apply(copies[i], where, one, axes)
        return torch.cat(copies)
    where = address.slices(axes, value.shape)
    part = address.of(value, axes)
    made = edit(part.clone()) if callable(edit) else edit  # A clone, because a function may write into its argument.
    if isinstance(made, Real):
        with suppress(OverflowError):  # Of a whole number that no float reaches.
            made = torch.tensor(float(made))
    if not isinstance(made, Tensor) or made.is_complex():
        got = "complex numbers" if isinstance(made, Tensor) else "None" if made is None else type(made).__name__
        what = "a function that returns a tensor or a number" if callable(edit) else "a tensor, a number or a function"
        raise UserError(f"{address}: expected {what}, got {got}")
    try:
        new = made.to(part).expand_as(part)
    except RuntimeError:
        raise UserError(
            f"{address}: expected an edit of shape {tuple(part.shape)}, got {tuple(made.shape)}; try a number"
        ) from None
    if not address.index:
        return new
    result = value.clone()
    result[where] = new
    return result


def nearest(path: str, known: Iterable[str]) -> str:
    """A suggestion for an error message: the known name that is most alike, if any."""
    close = get_close_matches(path, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
