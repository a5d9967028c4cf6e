"""The answers of a span head: the best span of each context, or none, over all its windows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clearhead.config import ModelConfig, SpanHead
from clearhead.data.batches import token_budget_batches
from clearhead.data.squad_ids import NO_ANSWER, Window, Windows
from clearhead.errors import UserError
from clearhead.json_text import JsonObject, tabbed
from clearhead.model import Tokens, Transformer
from clearhead.model.mode import Evaluating
from clearhead.progress import counted
from clearhead.tasks.answers import BATCH_TOKENS
from clearhead.tasks.task import Prediction
from clearhead.text.tokenizers import Tokenizer

MOST_TOKENS = 30
"""Tokens of an answer at most, as in the scripts of Devlin et al. 2018."""


@dataclass(frozen=True)
class Found:
    """Characters [start, end) of a context, or none of them."""

    start: int
    end: int
    score: float
    """The logit of the start and that of the end."""
    probability: float
    """The product of the probabilities of its start and its end in its window."""

    def text(self, context: str) -> str:
        """The text of the answer; empty without one."""
        return context[self.start : self.end]


def check_span_head(config: ModelConfig) -> None:
    """Raises UserError for any other head."""
    if not isinstance(config.head, SpanHead):
        raise UserError(
            f"model: expected a span head, got {config.head.kind}; try clearhead train question_answering first"
        )


def batch_of(windows: Sequence[Window], tokenizer: Tokenizer, *, packed: bool) -> Tokens:
    """These windows as one batch, with the type of each text."""
    tokens = Tokens.pad([one.ids for one in windows], fill=tokenizer.pad_id or 0, packed=packed)
    types = Tokens.pad([one.types for one in windows]).ids
    return Tokens(tokens.ids, tokens.valid, tokens.rows, types=types)


def on_grid(logits: Tensor, tokens: Tokens) -> Tensor:
    """n 2 or b t 2 -> b t 2, with -inf in the padding."""
    if tokens.valid is None:
        return logits if logits.ndim == 3 else logits.unflatten(0, tokens.grid)
    if logits.ndim == 3:
        return logits.masked_fill(~tokens.valid[..., None], -torch.inf)
    grid = logits.new_full((tokens.valid.numel(), 2), -torch.inf)
    grid[tokens.valid.flatten()] = logits
    return grid.view(*tokens.valid.shape, 2)


def logits_of(network: Transformer, data: Windows, tokenizer: Tokenizer) -> list[np.ndarray]:
    """The logits of each window's cells, t 2, on the CPU."""
    found: list[np.ndarray] = [np.empty((0, 2))] * len(data.windows)
    budget = max([BATCH_TOKENS, *data.lengths])
    with Evaluating(network), torch.inference_mode():
        for examples in counted(token_budget_batches(data.lengths, max_tokens=budget, seed=0, epoch=0), "reading"):
            tokens = batch_of([data.windows[i] for i in examples], tokenizer, packed=True)
            tokens = tokens.to(next(network.parameters()).device)
            grid = on_grid(network(tokens), tokens).double().cpu().numpy()
            for i, row in zip(examples, grid, strict=True):
                found[i] = row[: len(data.windows[i].ids)]
    return found


def best_of(data: Windows, logits: Sequence[np.ndarray]) -> list[Found]:
    """The best answer of each question: the span with the largest score in any window.

    It is none if, in every window, the cell of no answer has a larger score than that span (Devlin et al. 2018, 4.3).
    """
    spans: list[Found | None] = [None] * data.n_questions
    none = [Found(0, 0, np.inf, 0.0)] * data.n_questions
    for window, rows in zip(data.windows, logits, strict=True):
        q = window.question
        found, nothing, best = _best(window, rows), _none(rows), spans[q]
        if found is not None and (best is None or found.score > best.score):
            spans[q] = found
        none[q] = min(none[q], nothing, key=lambda one: one.score)
    return [
        nothing if span is None or nothing.score > span.score else span
        for span, nothing in zip(spans, none, strict=True)
    ]


def _none(rows: np.ndarray) -> Found:
    return Found(0, 0, float(rows[NO_ANSWER].sum()), _share(rows, NO_ANSWER, NO_ANSWER))


def _best(window: Window, rows: np.ndarray) -> Found | None:
    if not (n := len(window.places)):
        return None
    cells = rows[window.start : window.start + n]
    sums = cells[:, :1] + cells[None, :, 1]
    sums[np.tril_indices(n, -1)] = -np.inf
    sums[np.triu_indices(n, MOST_TOKENS)] = -np.inf
    first, last = np.unravel_index(int(sums.argmax()), sums.shape)
    share = _share(rows, window.start + int(first), window.start + int(last))
    return Found(window.places[first][0], window.places[last][1], float(sums[first, last]), share)


def _share(rows: np.ndarray, first: int, last: int) -> float:
    shares = np.exp(rows - rows.max(0))
    shares /= shares.sum(0)
    return float(shares[first, 0] * shares[last, 1])


def said(
    network: Transformer, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], *, limit: int, overlap: int
) -> Iterator[Prediction]:
    """The answer to each question in its context; an empty line if there is none."""
    data = Windows.of(pairs, tokenizer, limit=limit, overlap=overlap)
    for (_, context), found in zip(pairs, best_of(data, logits_of(network, data, tokenizer)), strict=True):
        answer = found.text(context)
        place: JsonObject = {"start": found.start, "end": found.end} if answer else {"start": None, "end": None}
        line = tabbed(" ".join(answer.split()))
        yield Prediction(line, {"answer": answer, **place, "probability": found.probability})
