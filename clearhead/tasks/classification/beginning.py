"""The first weights of a new classifier of texts: what counting words says, written into the network.

A text's classifier begins as a linear model of its tokens. One of pairs begins with heads that find the tokens which
both texts have. Attention and feed-forward layers begin near zero, and training changes all of it.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.config.heads import ClassificationHead, ProblemType
from clearhead.config.inputs import TokenInput
from clearhead.config.positions import Rotary
from clearhead.errors import require
from clearhead.model import Transformer
from clearhead.tasks.classification.linear import STRENGTHS, estimator, sample

LARGEST = 3.0
"""The greatest length of what a token's vector has of a linear model; its other numbers have deviation 1."""
LIFT = 4.0
"""What is added to the rows of the dense layer."""
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
) -> bool:
    """Makes the logits of a network about those of a linear model of its tokens, the best on validation.

    Its k directions are numbers in each token's vector. Another number is 1, from which the dense layer makes all its
    rows so large that gelu(x) is x. The norm behind it divides by the length of a mean of random vectors, about
    1 / sqrt(n), as TF-IDF does. Blocks add nothing. `logits` gives those of training texts with these numbers.
    Returns False, and leaves the network as it is, where no linear model can be fitted. Raises UserError without
    scikit-learn.
    """
    require("begin=words", "sklearn", "score", "scikit-learn")
    from sklearn.feature_extraction.text import TfidfVectorizer

    names = "encoder.embed.tokens.weight", "head.dense.weight", "head.output.weight", "head.output.bias"
    table, dense, output, bias = map(network.get_parameter, names)
    (n_tokens, width), n_labels, is_single = table.shape, len(bias), problem_type == "single_label_classification"
    train, some = ids["train"], sample([()] * len(ids["train"]), n_labels)
    learned, tfidf = targets["train"][some], TfidfVectorizer(analyzer=list, lowercase=False, vocabulary=range(n_tokens))
    if is_single and len(np.unique(learned)) < n_labels:
        return False
    known, valid = tfidf.fit_transform([train[i] for i in some]), tfidf.transform(ids["valid"])

    def merit(model: Linear) -> float:
        found: np.ndarray = valid @ model[0].T + model[1]
        answers = found.argmax(1) if is_single else found > 0 if targets["valid"].ndim == 2 else found[:, 0]
        return score(targets["valid"], answers)

    models = linear_models(known, tfidf.idf_, learned, n_labels, problem_type=problem_type)
    if (best := max(models, key=merit, default=None)) is None:
        return False
    weights, constants = best
    left, sizes, directions = np.linalg.svd((weights * tfidf.idf_).T, full_matrices=False)
    k = min(len(sizes), n_labels - is_single, width * 3 // 4)
    parts = left[:, :k] * sizes[:k]
    parts *= LARGEST / max(np.linalg.norm(parts, axis=1).max(), 1e-9)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if name.endswith(("attn.out.weight", "ffn.down.weight")):
                weight.zero_()
        table.copy_(torch.from_numpy(vectors(np.append(parts, np.ones((n_tokens, 1)), axis=1), width)))
        dense.normal_(std=math.sqrt(3 / width))
        dense[:, :k] = dense[:k] = 0
        dense[range(k), range(k)] = 1
        dense[k:] -= dense.sum(0) / (width - k)  # The rows add up to 0, so that the norm subtracts the lift alone.
        dense[:, k] = LIFT
        output.zero_()
        output[:, :k] = torch.from_numpy(directions[:k].T)
        bias.zero_()
        rows = range(0, len(train), max(1, len(train) // MOST_ROWS))
        found = logits(rows).double().numpy()
        wanted = tfidf.transform([train[i] for i in rows]) @ weights.T + constants
        scale = (found * (wanted - wanted.mean(0))).sum() / max(((found - found.mean(0)) ** 2).sum(), 1e-9)
        output.mul_(scale)
        bias.copy_(torch.from_numpy((wanted - scale * found).mean(0)))
    return True


def vectors(parts: np.ndarray, width: int) -> np.ndarray:
    """v width: these numbers, then random ones. Each row has mean 0 and deviation 1, which a norm leaves as it is."""
    n = width - parts.shape[1]
    random, sums = torch.randn(len(parts), n).double().numpy(), parts.sum(1, keepdims=True)
    random -= random.mean(1, keepdims=True)
    left = width - (parts**2).sum(1, keepdims=True) - sums**2 / n
    return np.append(parts, random * np.sqrt(left / (random**2).sum(1, keepdims=True)) - sums / n, axis=1)


Linear: TypeAlias = tuple[np.ndarray, np.ndarray]
"""k v and k: the weights and constants of each label."""


def linear_models(
    known: Any, idf: np.ndarray, learned: np.ndarray, n_labels: int, *, problem_type: ProblemType
) -> Iterator[Linear]:
    """Linear models of TF-IDF with each of `STRENGTHS`: alone, and with as much of the log-ratios of naive Bayes.

    There are none where all texts, or no text, have one of the labels.
    """
    for strength in STRENGTHS:
        with warnings.catch_warnings(action="ignore"):  # A label may be in all texts, and the solver may stop early.
            model = estimator(strength, problem_type, n_labels).fit(known, learned)
        each = getattr(model, "estimators_", [model])
        if any(getattr(one, "coef_", None) is None for one in each):
            return
        weights, constants = np.vstack([one.coef_ for one in each]), np.hstack([one.intercept_ for one in each])
        if len(weights) < n_labels:
            weights, constants = np.append(-weights, weights, axis=0) / 2, np.append(-constants, constants) / 2
        yield weights, constants
        if problem_type != "regression":
            inside = (known > 0).T @ (np.eye(n_labels)[learned] if learned.ndim == 1 else learned * 1.0) + 1
            outside = np.bincount(known.indices, minlength=known.shape[1])[:, None] + 2 - inside
            ratios = (np.log(inside / inside.sum(0)) - np.log(outside / outside.sum(0))).T / idf
            ours, theirs = known @ weights.T, known @ ratios.T
            ratios *= ours.std(0).mean() / max(theirs.std(0).mean(), 1e-9)
            yield weights + ratios, constants - (known @ ratios.T).mean(0)


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
