"""What a linear model of words and letters says of texts, joined to what networks say of them.

It errs elsewhere than a network does, so both together tell wrong labels better (docs/judging.md).
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from clearhead.data.labelled import LabelledText

LEAST = 1e-6
"""The least probability of which a logarithm is taken."""
FEATURES = 1 << 18
"""Most kinds of words, and of pieces of words, that it counts."""


def opinion(learn_from: Sequence[LabelledText], judge: Sequence[LabelledText], names: Sequence[str]) -> np.ndarray:
    """n v: how likely each of the names is a label of each text to judge, each name on its own.

    Logistic regression on TF-IDF of words, pairs of words and pieces of 2 to 5 letters.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_union

    counted = partial(TfidfVectorizer, sublinear_tf=True, max_features=FEATURES)
    words = counted(ngram_range=(1, 2), tokenizer=str.split, token_pattern=None)  # pyrefly: ignore[bad-argument-type]
    counts = make_union(words, counted(analyzer="char_wb", ngram_range=(2, 5)))
    known = counts.fit_transform([" ".join(example.texts) for example in learn_from])
    new = counts.transform([" ".join(example.texts) for example in judge])
    found = np.empty((len(judge), len(names)))
    for i, name in enumerate(names):
        has = np.array([name in example.labels for example in learn_from])
        if has.all() or not has.any():
            found[:, i] = has[0]
        else:
            found[:, i] = LogisticRegression(C=3.0, max_iter=500).fit(known, has).predict_proba(new)[:, 1]
    return found


def joined(networks: np.ndarray, linear: np.ndarray, has: np.ndarray, *, several: bool) -> np.ndarray:
    """n v: the probabilities p^a q^b, normalised, with the exponents that fit the given labels best.

    A logarithmic pool (Genest and Zidek 1986) of networks (p) and a linear model (q). `has`: n v, whether a text has a
    label. With `several`, labels do not exclude each other, and each is a choice of its own.
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    shape = networks.shape
    if several:
        networks, linear, has = (np.stack([1 - x, x], -1).reshape(-1, 2) for x in (networks, linear, has.astype(float)))
    logs = np.log(np.clip([networks, linear], LEAST, 1.0))
    chosen = has.argmax(1)

    def pooled(exponents: np.ndarray) -> np.ndarray:
        return log_softmax(np.tensordot(exponents, logs, 1), axis=1)

    def loss(exponents: np.ndarray) -> float:
        return -float(pooled(exponents)[np.arange(len(chosen)), chosen].mean())

    found = np.exp(pooled(minimize(loss, [1.0, 0.1], bounds=[(0.0, None), (0.0, None)]).x))
    return found[:, 1].reshape(shape) if several else found
