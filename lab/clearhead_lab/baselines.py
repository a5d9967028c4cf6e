"""The networks that came before the Transformer, of PyTorch's own recurrent cells."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Cell = Literal["RNN", "LSTM", "GRU"]


def scored(logits: Tensor, labels: Tensor | None) -> Tensor:
    """b v: the logits, or with labels the summed loss in nats, as the engine's networks do."""
    return logits if labels is None else F.cross_entropy(logits, labels, reduction="sum")


class Recurrent(nn.Module):
    """One layer of recurrent cells, and the logits of one class from its last state."""

    def __init__(self, cell: Cell, n_symbols: int, width: int) -> None:
        super().__init__()
        kinds: dict[Cell, Callable[..., nn.RNNBase]] = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}
        self.embed = nn.Embedding(n_symbols, width)
        self.cells = kinds[cell](width, width, batch_first=True)
        self.output = nn.Linear(width, n_symbols)

    def forward(self, tokens: Tensor, labels: Tensor | None = None) -> Tensor:
        """b t -> b v, or the summed loss."""
        states, _ = self.cells(self.embed(tokens))
        return scored(self.output(states[:, -1]), labels)


class Translator(nn.Module):
    """An LSTM reads the source, another writes from its last state, the fixed vector   (Sutskever et al. 2014)

    With `attention`, the writer also reads sum_s w_s h_s, w = softmax(v . tanh(W q + U h_s)): additive attention to
    all states of the source   (Bahdanau et al. 2015, A.1.2). It writes one symbol, or with `whole` one for each of the
    source, and does not read what it wrote.
    """

    def __init__(self, n_symbols: int, width: int, *, attention: bool, whole: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(n_symbols, width)
        self.reader = nn.LSTM(width, width, batch_first=True)
        self.start = nn.Parameter(torch.zeros(width))
        self.writer = nn.LSTM(width, width, batch_first=True)
        self.attention = AdditiveAttention(width) if attention else None
        self.output = nn.Linear(width * (1 + attention), n_symbols)
        self.whole = whole

    def forward(self, tokens: Tensor, labels: Tensor | None = None) -> Tensor:
        """b t -> b v, or b t v with `whole`, or the summed loss."""
        states, summary = self.reader(self.embed(tokens))
        n = tokens.shape[1] if self.whole else 1
        written, _ = self.writer(self.start.expand(len(tokens), n, -1), summary)
        if self.attention is not None:
            written = torch.cat([written, self.attention(written, states)], -1)
        logits = self.output(written)
        return scored(logits if labels is None and self.whole else logits.flatten(0, 1), labels)


class AdditiveAttention(nn.Module):
    """sum_s w_s h_s, w = softmax(v . tanh(W q + U h_s))"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, query: Tensor, states: Tensor) -> Tensor:
        """b n d, b t d -> b n d"""
        scores = self.score((self.query(query)[:, :, None] + self.key(states)[:, None]).tanh())[..., 0]
        return scores.softmax(-1) @ states
