"""Refuses inputs of the wrong shape or kind in one line. Checks read only shapes and types, so no device waits."""

import torch
from torch import Tensor

from clearhead.brief import shape_of
from clearhead.config import Continuous, StackConfig
from clearhead.errors import UserError
from clearhead.model.layout import Tokens
from clearhead.model.table import Table

WHOLE = (torch.int64, torch.int32)


def check_tokens(tokens: Tokens, stack: StackConfig) -> None:
    """Raises UserError unless a stack can read these ids and the other values of each cell."""
    ids = tokens.ids
    reads = stack.input
    if isinstance(reads, Continuous):
        if ids.ndim != 1 + len(reads.shape) or not ids.is_floating_point():
            raise UserError(f"{reads.medium}: expected floats of batch x {reads.sides}, got {shape_of(ids)}")
        return
    if ids.ndim != 2 or ids.dtype not in WHOLE:
        remedy = "try ids[None]" if ids.ndim == 1 and ids.dtype in WHOLE else "try Tokens.pad(lists of ids)"
        raise UserError(f"ids: expected int64 of batch x length, got {shape_of(ids)}; {remedy}")
    if not ids.numel():
        raise UserError(f"ids: expected at least one token, got {shape_of(ids)}")
    b, t = ids.shape
    for name, value in (("positions", tokens.positions), ("documents", tokens.documents), ("types", tokens.types)):
        if value is not None and (value.dtype not in WHOLE or value.shape[1:] != (t,) or value.shape[0] not in (1, b)):
            raise UserError(f"{name}: expected int64 of {b} x {t}, one for each of the ids, got {shape_of(value)}")
    if tokens.valid is not None and (tokens.valid.dtype != torch.bool or tokens.valid.shape != (b, t)):
        raise UserError(f"valid: expected bool of {b} x {t}, True where a token is, got {shape_of(tokens.valid)}")


def look_up(table: Table, index: Tensor, what: str) -> Tensor:
    """The table's rows. Raises UserError for an index without a row, but only on a CPU: other devices would wait."""
    try:
        return table(index)
    except IndexError:
        outside = index[(index < 0) | (index >= table.num_embeddings)]
        raise UserError(
            f"{what}: expected numbers in 0..{table.num_embeddings - 1}, the rows of the table, got {int(outside[0])}"
        ) from None


def check_labels(labels: Tensor, n: int) -> None:
    """Raises UserError unless there is one whole number for each of n distributions."""
    if not isinstance(labels, Tensor) or labels.shape != (n,) or labels.dtype != torch.int64:
        what = "one for each real position, or for each sequence where the head says one class"
        raise UserError(f"labels: expected int64 of {n}, {what}, got {shape_of(labels)}")


def outside(labels: Tensor, n_classes: int) -> UserError:
    """The message about labels that a loss refused."""
    wrong = labels[(labels < 0) | (labels >= n_classes)]
    return UserError(f"labels: expected numbers in 0..{n_classes - 1}, got {int(wrong[0])}")
