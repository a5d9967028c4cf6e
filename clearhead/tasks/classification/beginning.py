"""The first weights of a new classifier of texts: what counting words says, written into the network.

A text's classifier begins as a linear model of its tokens. One of pairs begins with heads that find the tokens which
both texts have. Attention and feed-forward layers begin near zero, and training changes all of it.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.config.heads import ClassificationHead, ProblemType
from clearhead.config.inputs import TokenInput
from clearhead.config.positions import Rotary
from clearhead.model import Transformer
from clearhead.tasks.classification.linear import STRENGTHS, estimator, sample

LARGEST = 3.0
"""The largest number of a token's vector that stands for its part of a linear model; the others have deviation 1."""
MOST_ROWS = 2_000
"""The texts that the scale of the logits is measured on, at most."""


def can_begin(config: ModelConfig) -> bool:
    """Returns True if a network is like the preset `text-classifier`, whatever its size."""
    stack, head = config.encoder, config.head
    if stack is None or config.decoder is not None or not isinstance(head, ClassificationHead):
        return False
    reads = isinstance(stack.input, TokenInput) and stack.input.norm and (head.pool, head.bias) == ("mean", True)
    turns = stack.positions == Rotary() and stack.has_qkv_bias and stack.has_key_bias and stack.head_width >= 16
    return reads and head.transform and turns and stack.gated and stack.norm_place == "pre" and stack.experts is None


# --- single texts ---------------------------------------------------------------------------------------------------


def begin_linear(
    network: Transformer,
    ids: dict[str, Sequence[list[int]]],
    targets: dict[str, np.ndarray],
    *,
    problem_type: ProblemType,
    score: Callable[[np.ndarray, np.ndarray], float],
    logits: Callable[[Sequence[int]], Tensor],
) -> None:
    """Makes the logits of a network about those of a linear model of TF-IDF, the better on validation of `STRENGTHS`.

    Its k directions are numbers in each token's vector. Rows ±x of the dense layer keep them, because gelu(x) -
    gelu(-x) = x. The norm behind it divides by the length of a mean of random vectors, about 1 / sqrt(n), as TF-IDF
    does. `logits` gives those of training texts with these numbers.
    """
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfTransformer

    table, dense = network.get_parameter("encoder.embed.tokens.weight"), network.get_parameter("head.dense.weight")
    output, bias = network.get_parameter("head.output.weight"), network.get_parameter("head.output.bias")
    (n_tokens, width), n_labels = table.shape, len(bias)
    tfidf, some = TfidfTransformer(), sample([()] * len(ids["train"]), n_labels)

    def counts(rows: Sequence[list[int]]) -> Any:
        ends = np.cumsum([0, *map(len, rows)])
        return csr_matrix((np.ones(ends[-1]), [i for row in rows for i in row], ends), shape=(len(rows), n_tokens))

    known = tfidf.fit_transform(counts([ids["train"][i] for i in some]))
    learned, valid = targets["train"][some], tfidf.transform(counts(ids["valid"]))
    if problem_type == "single_label_classification" and len(np.unique(learned)) < n_labels:
        return
    with warnings.catch_warnings(action="ignore"):  # A label may be in all texts, and the solver may stop early.
        fitted = [estimator(strength, problem_type, n_labels).fit(known, learned) for strength in STRENGTHS]
    best = max(fitted, key=lambda model: score(targets["valid"], model.predict(valid)))
    if any(getattr(one, "coef_", None) is None for one in getattr(best, "estimators_", [best])):
        return  # All texts, or none, have one of the labels.
    weights, constants = coefficients(best)
    left, sizes, directions = np.linalg.svd((weights * tfidf.idf_).T, full_matrices=False)
    k = min(len(sizes), n_labels - (problem_type == "single_label_classification"), width * 3 // 8)
    parts = left[:, :k] * sizes[:k]
    kept = directions[:k].T
    with torch.no_grad():
        table.normal_()
        table[:, :k] = torch.from_numpy(parts * (LARGEST / max(np.abs(parts).max(), 1e-9)))
        dense.normal_(std=math.sqrt(12 / width))
        dense[:, :k] = 0
        dense[: 2 * k] = 0
        dense[range(0, 2 * k, 2), range(k)] = 1
        dense[range(1, 2 * k, 2), range(k)] = -1
        output.zero_()
        output[:, 0 : 2 * k : 2] = torch.from_numpy(kept)
        output[:, 1 : 2 * k : 2] = -torch.from_numpy(kept)
        bias.zero_()
        rows = range(0, len(ids["train"]), max(1, len(ids["train"]) // MOST_ROWS))
        found = logits(rows).double().numpy()
        wanted = tfidf.transform(counts([ids["train"][i] for i in rows])) @ weights.T
        output.mul_((found * wanted).sum() / max((found**2).sum(), 1e-9))
        bias.copy_(torch.from_numpy(constants))


def coefficients(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """v t and v: the weights and constants of each label."""
    each = getattr(model, "estimators_", [model])
    weights = np.concatenate([np.atleast_2d(one.coef_) for one in each])
    constants = np.concatenate([np.atleast_1d(one.intercept_) for one in each])
    if len(weights) == 1 and len(getattr(model, "classes_", ())) == 2:
        weights, constants = (np.concatenate([-one, one]) / 2 for one in (weights, constants))
    return weights, constants


# --- pairs ----------------------------------------------------------------------------------------------------------

EQUAL, MARK, NEAR = 40.0, 20.0, 30.0
"""Scores of two equal tokens, of any token and the mark between the texts, and the one that is lost by being near."""
NEARBY, FAR = 0.15, 0.1
"""Frequencies above the one tell tokens nearby; those below the other hardly depend on the distance."""


def begin_matching(network: Transformer, ids: Sequence[list[int]], separator: int) -> None:
    """Makes the heads of the first layer find the tokens that both texts have: others attend to the separator.

    A token reads itself elsewhere, because its own place is near. What an unmatched token gets is one number, which
    the head reads, also multiplied by the token's rarity.
    """
    table, dense = network.get_parameter("encoder.embed.tokens.weight"), network.get_parameter("head.dense.weight")
    (n_tokens, width), block = table.shape, "encoder.blocks.0"
    stack = network.config.first
    mark, single, rarity, weighed = range(width - 4, width)
    q, k, v, out, gate, up, down = (
        network.get_parameter(f"{block}.{name}.weight")
        for name in ("attn.q", "attn.k", "attn.v", "attn.out", "ffn.gate", "ffn.up", "ffn.down")
    )
    q_bias, k_bias = (network.get_parameter(f"{block}.attn.{name}.bias") for name in ("q", "k"))
    found = torch.bincount(torch.tensor([i for row in ids for i in {*row}]), minlength=n_tokens)
    rare = torch.log((len(ids) + 1) / (found + 1.0))
    d_head, half, unit = stack.head_width, stack.head_width // 2, 1 / stack.score_scale
    assert isinstance(stack.positions, Rotary)
    turns = [stack.positions.base ** (-i / half) for i in range(half)]
    near = [i for i, turn in enumerate(turns) if turn > NEARBY]
    far = [i for i, turn in enumerate(turns[:-1]) if turn < FAR]
    far += [i + half for i in far]
    with torch.no_grad():
        table.normal_()
        table[:, mark:] = 0
        table[separator, mark] = 2 * LARGEST
        table[:, rarity] = LARGEST * rare / rare.max().clamp(min=1e-9)
        for at in range(0, len(q), d_head):
            rows = [at + i for i in far]
            directions = torch.linalg.qr(torch.randn(mark, len(rows)))[0].T * math.sqrt(EQUAL * unit / len(rows))
            for side in (q, k):
                side[at : at + d_head] = 0
                side[rows, :mark] = directions
            q_bias[[at + i for i in near]] = -math.sqrt(NEAR * unit / len(near))
            k_bias[[at + i for i in near]] = math.sqrt(NEAR * unit / len(near))
            q_bias[at + half - 1] = k[at + half - 1, mark] = math.sqrt(MARK * unit / (2 * LARGEST))
            v[at], out[:, at] = 0, 0
            v[at, mark], out[single, at] = 1, d_head / len(q) / 2
        gate[0], up[0], down[:, 0] = 0, 0, 0
        gate[0, rarity] = up[0, single] = 1
        down[weighed, 0] = 0.5
        for i, place in enumerate((weighed, single, rarity)):
            dense[2 * i : 2 * i + 2] = 0
            dense[2 * i, place], dense[2 * i + 1, place] = 1, -1
