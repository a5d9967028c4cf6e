"""Rules for tensors whose rows lie in another order than ours: several matrices in one, and pairs for rotation.

Each works for a matrix, whose rows are outputs, and for the bias of these outputs. Imports no torch before a tensor is
converted.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clearhead.checkpoints.weights.mapping import Rule
from clearhead.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


def fused(theirs: str, ours: Sequence[str], *, rows: Sequence[int], groups: int = 1) -> Rule:
    """Theirs holds `groups` groups of rows; each group has rows[0] of ours[0], then rows[1] of ours[1], and so on."""

    def load(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        whole = tensors[0]
        if whole.ndim == 0 or len(whole) != groups * sum(rows):
            raise UserError(f"expected {groups * sum(rows)} rows, got shape {list(whole.shape)}")
        return [part.flatten(0, 1) for part in whole.unflatten(0, (groups, sum(rows))).split(list(rows), 1)]

    def save(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        import torch

        parts = [tensor.unflatten(0, (groups, n)) for tensor, n in zip(tensors, rows, strict=True)]
        return [torch.cat(parts, 1).flatten(0, 1)]

    return Rule((theirs,), tuple(ours), load, save)


def turned_first(rule: Rule, *sides: int, width: int, turned: int) -> Rule:
    """The same rule for heads of `width` rows whose last `turned` ones rotate; ours are the first."""

    def load(tensor: "Tensor") -> "Tensor":
        return tensor.unflatten(0, (-1, width)).roll(turned, 1).flatten(0, 1)

    def save(tensor: "Tensor") -> "Tensor":
        return tensor.unflatten(0, (-1, width)).roll(-turned, 1).flatten(0, 1)

    return _each(rule, sides, load, save)


def paired(rule: Rule, *sides: int, width: int, rotated: int) -> Rule:
    """The same rule for heads that rotate neighbours, (0, 1), (2, 3), ...; ours rotate halves, (0, r/2), (1, r/2 + 1).

    `sides` are the numbers of the queries and keys among ours, whose heads have `width` rows, `rotated` of them turned.
    """

    def halves(tensor: "Tensor") -> "Tensor":
        return _turned(tensor, width, rotated, (rotated // 2, 2))

    def neighbours(tensor: "Tensor") -> "Tensor":
        return _turned(tensor, width, rotated, (2, rotated // 2))

    return _each(rule, sides, halves, neighbours)


def _each(
    rule: Rule, sides: Sequence[int], load: "Callable[[Tensor], Tensor]", save: "Callable[[Tensor], Tensor]"
) -> Rule:
    """The same rule, after which these of our tensors are turned, and before which they are turned back."""

    def each(turn: "Callable[[Tensor], Tensor]", tensors: "Sequence[Tensor]") -> "list[Tensor]":
        return [turn(tensor) if i in sides else tensor for i, tensor in enumerate(tensors)]

    return replace(
        rule,
        load=lambda tensors: each(load, rule.load(tensors)),
        save=lambda tensors: rule.save(each(save, tensors)),
    )


def _turned(tensor: "Tensor", width: int, rotated: int, grid: tuple[int, int]) -> "Tensor":
    """The first `rotated` rows of each head, as a grid, transposed."""
    import torch

    heads = tensor.unflatten(0, (-1, width))
    turned = heads[:, :rotated].unflatten(1, grid).transpose(1, 2).flatten(1, 2)
    return torch.cat([turned, heads[:, rotated:]], 1).flatten(0, 1)
