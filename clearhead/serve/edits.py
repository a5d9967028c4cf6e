"""Edits that belong to single rows of a batch: each request has its own, and the others are as without any."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.analysis.steering import Direction
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.mode import Evaluating
from clearhead.trace import Edit, edited


@dataclass(frozen=True, eq=False)
class Steering:
    """A direction with a strength, which a request asks for."""

    direction: Direction
    strength: float


@contextmanager
def steered(network: Transformer, rows: Sequence[Sequence[Steering]], tokens: Tokens) -> Iterator[None]:
    """Adds to each row of a batch its own directions while the block runs. A row without any keeps its bits."""
    addresses = {one.direction.at for row in rows for one in row}
    if not addresses:
        yield
        return
    edits: dict[str, Edit] = {at: _added(at, rows, tokens) for at in addresses}
    with edited(network, edits):
        yield


def _added(at: str, rows: Sequence[Sequence[Steering]], tokens: Tokens) -> Callable[[Tensor], Tensor]:
    """The edit of the value at an address: b t d, or m d where the batch is packed."""
    own = {
        i: torch.stack([one.direction.vector * one.strength for one in found]).sum(0)
        for i, row in enumerate(rows)
        if (found := [one for one in row if one.direction.at == at])
    }
    index, changes = torch.tensor([*own]), torch.stack([*own.values()])

    def edit(value: Tensor) -> Tensor:
        added = changes.to(value)
        if value.ndim == 3:
            value[index] += added[:, None]
            return value
        assert tokens.rows is not None
        row = F.pad(tokens.rows // tokens.grid[1], (0, len(value) - len(tokens.rows)), value=-1)
        for i, change in zip(own, added, strict=True):
            value[row == i] += change
        return value

    return edit


def check(network: Transformer, direction: Direction, name: str) -> None:
    """Raises UserError, which begins with `name`, unless the direction fits a value that serving can edit."""
    assert network.decoder is not None
    tokens = Tokens(torch.zeros(1, 1, dtype=torch.long, device=network.decoder.device))
    try:
        with Evaluating(network), torch.inference_mode(), edited(network, direction.edit()):
            network.decoder(tokens)
    except UserError as error:
        raise UserError(f"{name}: expected a direction that fits the model; {error}") from None
