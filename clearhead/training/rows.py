"""Training of tables of which a batch reads few rows, such as the embedding of a large vocabulary.

The gradient of a table is a row for each token of the batch, and zero elsewhere. A row that no batch has read yet has
no moments either, so AdamW without weight decay leaves it as it is. Both make an update touch a part of the table.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from clearhead.model import Transformer

WORTH_IT = 1 << 20
"""Smallest size of a table, in numbers, whose gradients are kept by rows."""
MOST = 0.4
"""Share of rows above which all are updated in place: to gather and to scatter them takes longer."""
MOMENTS = ("exp_avg", "exp_avg_sq")
SEEN = "seen"
"""The key of the rows that have moments. It is not saved, because it follows from them."""


def tables_of(network: Transformer) -> list[nn.Embedding]:
    """The large tables on a CPU that nothing else shares, such as a tied head, whose gradient is for every row."""
    modules = list(network.modules())
    uses = Counter(id(parameter) for m in modules for parameter in m.parameters(recurse=False))
    tables = [m for m in modules if isinstance(m, nn.Embedding) and m.weight.numel() >= WORTH_IT]
    return [m for m in tables if m.weight.device.type == "cpu" and uses[id(m.weight)] == 1]


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


def numbers(parameters: Iterable[nn.Parameter]) -> Iterator[Tensor]:
    """The gradients that exist: of a table by rows, those of the rows that were read, each once."""
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
            yield parameter.grad.values()
        else:
            yield parameter.grad


class RowsAdamW(torch.optim.Optimizer):
    """AdamW (Loshchilov & Hutter 2019) for tables by rows, which do not decay. Equal to PyTorch's."""

    def __init__(
        self, tables: list[nn.Parameter], *, lr: float, betas: tuple[float, float], eps: float, fused: bool
    ) -> None:
        super().__init__([{"params": tables}], {"lr": lr, "betas": betas, "eps": eps, "fused": fused})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyrefly: ignore[bad-override]
        """One update of every table that has a gradient."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is None:
                    continue
                state = self.state[table]
                if not state:
                    state |= {name: torch.zeros_like(table) for name in MOMENTS} | {"step": torch.zeros(())}
                self._step(group, table, table.grad, state)

    @staticmethod
    def _step(group: dict[str, Any], table: Tensor, gradient: Tensor, state: dict[str, Any]) -> None:
        kept = [table, *(state[name] for name in MOMENTS)]
        if SEEN not in state:
            state[SEEN] = torch.stack([moment.any(1) for moment in kept[1:]]).any(0)
        gradient = gradient.coalesce() if gradient.is_sparse else gradient.to_sparse(1)
        (read,) = gradient.indices()
        state[SEEN][read] = True
        rows = state[SEEN].nonzero()[:, 0]
        if len(rows) > MOST * len(table):
            parts, dense = kept, gradient.to_dense()
        else:
            parts = [one[rows] for one in kept]
            dense = torch.zeros_like(parts[0]).index_copy_(0, torch.searchsorted(rows, read), gradient.values())
        beta1, beta2 = group["betas"]
        adamw(
            [parts[0]], [dense], [parts[1]], [parts[2]], [], [state["step"]], fused=group["fused"], amsgrad=False,
            maximize=False, lr=group["lr"], beta1=beta1, beta2=beta2, weight_decay=0.0, eps=group["eps"],
        )  # fmt: skip
        if parts is not kept:
            for whole, part in zip(kept, parts, strict=True):
                whole.index_copy_(0, rows, part)
