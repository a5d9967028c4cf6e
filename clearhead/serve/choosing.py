"""Chooses the next token of every running text, each with its own settings, in few operations."""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.generation import Sampler
from clearhead.generation.sampling import draw, uniform
from clearhead.serve.writing import Writing

Scored = tuple[float | None, list[tuple[int, float]]]
"""A token's log-probability and the likeliest tokens in its place, if a request asks for them."""


def choose(logits: Tensor, rows: Sequence[Writing]) -> list[int | None]:
    """n v -> each row's next token, independent of the other rows; None for a row whose logits are not finite."""
    scores = logits.float()
    if any(row.is_controlled for row in rows):
        each = zip(rows, scores.split(1), strict=True)
        scores = torch.cat(
            [row.sampler.control(own, row.history(own.device)) if row.is_controlled else own for row, own in each]
        )
    best, tokens = scores.max(-1)
    groups: dict[tuple[float | int | None, ...], list[int]] = {}
    for i, row in enumerate(rows):
        config = row.prompt.config
        if row.ahead is not None and row.ahead.proposal is not None:
            tokens[i] = row.sampler.settle(scores[i : i + 1], row.name, len(row.written), *row.ahead.proposal)[0]
        elif config.temperature > 0:
            groups.setdefault((config.temperature, config.top_k, config.top_p, config.min_p), []).append(i)
    for alike in groups.values():
        index = torch.tensor(alike, device=scores.device)
        tokens[index] = _sampled(scores if len(alike) == len(rows) else scores[index], [rows[i] for i in alike])
    finite = best.isfinite().tolist()
    return [token if good else None for token, good in zip(tokens.tolist(), finite, strict=True)]


def _sampled(scores: Tensor, rows: Sequence[Writing]) -> Tensor:
    """n v -> n, for rows with the same top-k, top-p and min-p."""
    chances = [uniform(row.prompt.config.seed, "sample", *row.name, len(row.written)) for row in rows]
    probabilities = Sampler(rows[0].prompt.config).narrow(scores).softmax(-1)
    wide = torch.float32 if scores.device.type == "mps" else torch.float64
    return draw(probabilities, torch.tensor(chances, dtype=wide, device=scores.device))


def scored(logits: Tensor, tokens: Sequence[int], n_likeliest: int) -> list[Scored]:
    """n v and the token chosen in each row -> its log-probability and the likeliest tokens."""
    log_probs = logits.float().log_softmax(-1)
    chosen = log_probs.gather(1, torch.tensor(tokens, device=logits.device)[:, None])[:, 0].tolist()
    values, ids = log_probs.topk(min(n_likeliest, logits.shape[-1]))
    pairs = [list(zip(*pair, strict=True)) for pair in zip(ids.tolist(), values.tolist(), strict=True)]
    return list(zip(chosen, pairs, strict=True))
