"""`node_effects`: which heads, feed-forwards and embeddings carry the answer, over many pairs of texts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clearhead.analysis.circuits import Nodes, refined_nodes
from clearhead.analysis.circuits.refined import EXACT
from clearhead.api import Model
from clearhead.api.circuits import circuits_of
from clearhead.capture.texts import Text
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.progress import counted
from clearhead.tasks.scores import intervals_of_means


@dataclass(frozen=True)
class NodeEffect:
    """What the answer loses if a part writes what it writes on the corrupt text: the mean over the pairs."""

    site: str
    """Such as `decoder.blocks.0.attn.heads[h=2]`."""
    mean: float
    """In units of the metric, such as logits."""
    interval: tuple[float, float]
    """The 95% bootstrap interval of the mean, over pairs."""
    exact: float
    """The share of the pairs in which the part was patched for real."""


def node_effects(model: Model, pairs: Sequence[tuple[Text, Text]], *, exact: float = EXACT) -> list[NodeEffect]:
    """The parts of a model by their mean effect on logit[answer] - logit[minus], the largest first.

    A pair is a clean text and a corrupt one of as many tokens, each a source and a target for an encoder-decoder. Its
    answer is the likeliest token on the clean text, `minus` that on the corrupt one, as in `circuits_of`; its nodes are
    `refined_nodes`. Raises UserError for no pairs, or for one whose texts differ in length.
    """
    if not pairs:
        raise UserError("pairs: expected pairs of a clean and a corrupt text, got none")
    found = [_nodes(model, i, pair, exact) for i, pair in counted(list(enumerate(pairs, 1)), "pairs")]
    sites = list(found[0].scores)
    scores = np.array([[nodes.scores[site] for site in sites] for nodes in found])
    patched = np.array([[site in nodes.exact for site in sites] for nodes in found])
    rows = zip(sites, scores.mean(0), intervals_of_means(scores), patched.mean(0), strict=True)
    each = [NodeEffect(site, float(mean), (float(low), float(high)), float(n)) for site, mean, (low, high), n in rows]
    return sorted(each, key=lambda one: -abs(one.mean))


def _nodes(model: Model, i: int, pair: tuple[Text, Text], exact: float) -> Nodes:
    clean, corrupt = (_inputs(model, text) for text in pair)
    try:
        return refined_nodes(circuits_of(model, clean, corrupt)[0], exact=exact)
    except UserError as error:
        raise UserError(f"pair {i}: {error}") from None


def _inputs(model: Model, text: Text) -> list[Tokens]:
    source, other = (text, None) if isinstance(text, str) else text
    return [model.here(tokens) for tokens in model.reader.inputs(source, other, model.generation)]
