"""Gradients of tables of which a batch reads few rows, such as the embedding of a large vocabulary.

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


def tables_of(network: Transformer) -> list[nn.Embedding]:
    """The large tables on a CPU. Rows are added in place to the gradient of a tied head, which has all of them."""
    tables = [m for m in network.modules() if isinstance(m, nn.Embedding) and m.weight.numel() >= WORTH_IT]
    return [m for m in tables if m.weight.device.type == "cpu"]


@contextmanager
def by_rows(tables: Sequence[nn.Embedding]) -> Iterator[None]:
    """While open, these tables give gradients by rows."""
    for table in tables:
        table.sparse = True
    try:
        yield
    finally:
        for table in tables:
            table.sparse = False


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
