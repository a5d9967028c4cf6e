"""Gradients of tables when a batch reads few rows, such as the embedding of a large vocabulary.

Such a gradient has a row for each token of the batch, and is zero elsewhere. The backward pass gives those rows alone.
The optimizer, which reads all of them, gets a gradient that is zero between the updates.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from clearhead.model import Transformer

WORTH_IT = 1 << 20
"""Smallest size of a table, in numbers, whose gradients come by rows."""


def large_tables(network: Transformer) -> list[nn.Embedding]:
    """The large tables on a CPU."""
    tables = [m for m in network.modules() if isinstance(m, nn.Embedding) and m.weight.numel() >= WORTH_IT]
    return [m for m in tables if m.weight.device.type == "cpu"]


@contextmanager
def by_rows(tables: Sequence[nn.Embedding]) -> Iterator[None]:
    """While open, look-ups in these tables give gradients by rows.

    At exit they are added to the gradient that a tied head gave its table. Autograd would make two gradients of the
    whole table more: that of the look-ups, and a sum.
    """
    weights = [table.weight for table in tables]
    aliases = {weight: nn.Parameter(weight.detach(), weight.requires_grad) for weight in weights}
    for table, weight in zip(tables, weights, strict=True):
        table.weight, table.sparse = aliases[weight], True
    try:
        yield
    finally:
        for table, weight in zip(tables, weights, strict=True):
            table.weight, table.sparse = weight, False
    for weight, alias in aliases.items():
        if weight.grad is None or alias.grad is None:
            weight.grad = alias.grad if weight.grad is None else weight.grad
        else:
            weight.grad.index_add_(0, alias.grad._indices()[0], alias.grad._values())


def gradients(parameters: Iterable[nn.Parameter]) -> Iterator[Tensor]:
    """The gradients that exist. Of a table by rows, it is that of the rows that were read, added up for each row."""
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
            yield parameter.grad.values()
        else:
            yield parameter.grad


class Whole:
    """The whole gradients of tables that give theirs by rows. Their memory is kept, and written only where needed."""

    def __init__(self) -> None:
        self._zeros: dict[nn.Parameter, Tensor] = {}

    @contextmanager
    def of(self, parameters: Iterable[nn.Parameter]) -> Iterator[None]:
        """While open, the gradients of these parameters are whole; afterwards those that came by rows are gone."""
        rows: dict[nn.Parameter, Tensor] = {}
        for parameter in parameters:
            if parameter.grad is not None and parameter.grad.is_sparse:
                gradient = parameter.grad.coalesce()
                rows[parameter] = gradient.indices()[0]
                if parameter not in self._zeros:
                    self._zeros[parameter] = torch.zeros_like(parameter)
                parameter.grad = self._zeros[parameter].index_copy_(0, rows[parameter], gradient.values())
        try:
            yield
        finally:
            for parameter, read in rows.items():
                self._zeros[parameter].index_fill_(0, read, 0.0)
                parameter.grad = None
