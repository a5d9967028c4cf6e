"""Turns the edits that a page states into functions for a trace, one for each path."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from clearhead.errors import UserError
from clearhead.explorer.answering.questions import EditRequest, RunRequest, TextSets
from clearhead.trace import Address, nearest


class Other(Protocol):
    """Looks a value up in another run."""

    def __call__(self, run: RunRequest, address: str, /) -> Tensor: ...


class Direct(Protocol):
    """Makes the direction of two sets of texts at an address."""

    def __call__(self, of: TextSets, at: str, /) -> Tensor: ...


@dataclass
class Window:
    """The decoder positions that the current step of generation computes: those from `start` on."""

    start: int = 0


@dataclass(frozen=True)
class ResolvedEdit:
    """An edit whose address exists."""

    where: Address
    axes: str
    """The axes of the whole value, the batch first."""
    edit: EditRequest

    @property
    def rest(self) -> list[str]:
        """The axes that the address leaves whole, without the batch."""
        indexed = dict(self.where.index)
        return [axis for axis in self.axes.split()[1:] if axis not in indexed]

    @property
    def waits(self) -> bool:
        """True if the edit can be made while a decoder writes, position by position.

        A mean over the decoder's positions needs all of them, and so does a row of numbers, one for each.
        """
        if self.where.path.startswith("encoder."):
            return True
        growing = {"t"} if ".cross." in self.where.path else {"t", "s"}
        if any(axis in growing and i < 0 for axis, i in self.where.index):
            return False
        match self.edit.do:
            case "mean":
                return _averaged(self) not in growing
            case "patch":
                return not growing & set(self.rest)
            case "set" if isinstance(self.edit.value, list):
                return not growing & set(self.rest[-1:])
            case _:
                return True


def resolve(edits: Sequence[EditRequest], axes: Mapping[str, str]) -> list[ResolvedEdit]:
    """Each edit with the axes of its address, by path in `axes`. Raises UserError for an unknown path or axis."""
    found: list[ResolvedEdit] = []
    for edit in edits:
        where = Address.parse(edit.at)
        if where.path not in axes:
            raise UserError(f"{where.path}: expected an address of this model, got another{nearest(where.path, axes)}")
        names = axes[where.path].split()[1:]
        for axis, _ in where.index:
            if axis not in names:
                raise UserError(f"{where}: axis {axis!r} is not one of {' '.join(names)!r}")
        one = ResolvedEdit(where, axes[where.path], edit)
        if edit.do == "mean" and _averaged(one) is None:
            raise UserError(f"{where}: expected positions to take the mean over, got one or none; try set")
        found.append(one)
    return found


def functions(
    edits: Sequence[ResolvedEdit], other: Other, window: Window | None = None, *, direct: Direct | None = None
) -> dict[str, Callable[[Tensor], Tensor]]:
    """The functions for a trace, by path. With a `window` they leave out edits of positions outside it.

    They raise UserError if an index or a shape does not fit.
    """
    by_path: dict[str, list[tuple[ResolvedEdit, Tensor | None]]] = {}
    for edit in edits:
        # Computed now: it may need a run, and traces do not nest.
        new = other(edit.edit.from_, str(edit.where)) if edit.edit.from_ is not None else None
        if edit.edit.of is not None:
            if direct is None:
                raise UserError(f"{edit.where}: expected no direction here, got one; leave it out")
            new = direct(edit.edit.of, edit.where.path)
        by_path.setdefault(edit.where.path, []).append((edit, new))
    return {path: partial(_made, several, window) for path, several in by_path.items()}


def _made(edits: Sequence[tuple[ResolvedEdit, Tensor | None]], window: Window | None, value: Tensor) -> Tensor:
    value = value.clone()
    for edit, given in edits:
        where = edit.where if window is None else _seen(edit, window, value.shape)
        if where is None:
            continue
        cells = where.slices(edit.axes, value.shape)
        part = value[cells]
        new = _new(edit, part, given)
        try:
            value[cells] = new.expand_as(part)
        except RuntimeError:
            wanted, got = list(part.shape[1:]), list(new.shape)
            raise UserError(f"{edit.where}: expected an edit of shape {wanted}, got {got}; try a number") from None
    return value


def _new(resolved: ResolvedEdit, part: Tensor, given: Tensor | None) -> Tensor:
    edit = resolved.edit
    match edit.do:
        case "add" if given is not None:
            assert isinstance(edit.value, int | float)
            if given.shape[-1:] != part.shape[-1:]:
                raise UserError(
                    f"{resolved.where}: expected the address of whole vectors, got a part; leave the index out"
                )
            return part + edit.value * given.to(part)
        case _ if given is not None:
            return given.to(part)
        case "zero":
            return torch.zeros_like(part)
        case "close":
            return torch.full_like(part, float("-inf"))
        case "mean":
            return part.mean(1 + resolved.rest.index(_averaged(resolved) or ""), keepdim=True)
        case "scale":
            assert isinstance(edit.value, int | float)
            return part * edit.value
        case "set" | "patch" | "add":
            return torch.tensor(edit.value).to(part)


def _averaged(resolved: ResolvedEdit) -> str | None:
    """The axis of positions that a mean is over."""
    return next((axis for axis in ("t", "s") if axis in resolved.rest), None)


def _seen(resolved: ResolvedEdit, window: Window, shape: torch.Size) -> Address | None:
    """The address relative to the window; None for a position outside the window."""
    where = resolved.where
    if where.path.startswith("encoder."):
        return where
    index: list[tuple[str, int]] = []
    for axis, i in where.index:
        length = shape[resolved.axes.split().index(axis)]
        if axis == "t" or (axis == "s" and ".cross." not in where.path and length <= window.start):
            i -= window.start  # Keys and values, unlike the rest, come whole from the cache.
        elif axis != "s" or ".cross." in where.path:
            index.append((axis, i))
            continue
        if not 0 <= i < length:
            return None
        index.append((axis, i))
    return Address(where.path, tuple(index))
