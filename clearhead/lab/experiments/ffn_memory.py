"""Facts learned by heart, and what is forgotten with a few units of the feed-forward."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.lab.experiment import Check, Experiment, Plot, Row
from clearhead.lab.learning import IGNORED, accuracy, decoder, learn
from clearhead.model import Transformer
from clearhead.trace import Edit, trace

SUBJECTS, RELATIONS, OBJECTS, UNITS = 24, 4, 24, 256
AT_ONCE = 24
"""Facts whose units are removed in one forward pass."""
POST = "decoder.blocks.0.ffn.post"


def facts() -> tuple[Tensor, Tensor]:
    """n 2: every subject with every relation, and for each pair an object drawn at random, n 2, at the second place."""
    subjects, relations = torch.arange(SUBJECTS), SUBJECTS + torch.arange(RELATIONS)
    pairs = torch.cartesian_prod(subjects, relations)
    objects = SUBJECTS + RELATIONS + torch.randint(0, OBJECTS, (len(pairs),))
    return pairs, torch.stack([torch.full_like(objects, IGNORED), objects], 1)


def contributions(network: Transformer, pairs: Tensor, labels: Tensor) -> Tensor:
    """n f: what each unit adds to the logit of a fact's object, to first order: activation x gradient."""
    with trace(network) as seen:
        logits = network(pairs)
    right = logits[torch.arange(len(pairs)), -1, labels[:, -1]].sum()
    post = seen[POST]
    (gradient,) = torch.autograd.grad(right, post)
    return (post * gradient)[:, -1].detach()


@torch.no_grad()
def known(network: Transformer, pairs: Tensor, labels: Tensor, removed: Tensor) -> Tensor:
    """n n, bool: whether fact j is still known without the units that row i of `removed`, n k, names."""
    found: list[Tensor] = []
    for units in removed.split(AT_ONCE):
        closed = torch.zeros(len(units), UNITS, dtype=torch.bool).scatter_(1, units, value=True)
        closed = closed.repeat_interleave(len(pairs), 0)[:, None]

        def without(post: Tensor, closed: Tensor = closed) -> Tensor:
            return post.masked_fill(closed, 0.0)

        edit: dict[str, Edit] = {POST: without}
        with trace(network, edit, without=("heads",)):
            answers = network(pairs.repeat(len(units), 1))[:, -1].argmax(-1)
        found.append(answers.view(len(units), -1) == labels[:, -1])
    return torch.cat(found)


def left(network: Transformer, pairs: Tensor, labels: Tensor, removed: Tensor) -> dict[str, float]:
    """How many facts survive without their units, and how many of the others survive that."""
    is_known = known(network, pairs, labels, removed)
    own = torch.eye(len(pairs), dtype=torch.bool)
    return {"its fact": is_known[own].double().mean().item(), "other facts": is_known[~own].double().mean().item()}


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Accuracy on a fact and on the others without the units that say most of it, or as many at random."""
    pairs, labels = facts()
    vocab_size = SUBJECTS + RELATIONS + OBJECTS
    network = decoder(vocab_size, n_layers=1, d_ff=UNITS, positions=c.Learned(max_length=2))
    learn(network, lambda: (pairs, labels), steps=300 if quick else 600)
    yield Row({"removed": "nothing", "units": 0}, {"accuracy": accuracy(network, pairs, labels)})
    ranked = contributions(network, pairs, labels).argsort(1, descending=True)
    for k in (3, 13, 26):
        for which, order in (("its own", ranked), ("random", torch.rand(ranked.shape).argsort(1))):
            yield Row({"removed": which, "units": k}, left(network, pairs, labels, order[:, :k]))
    every = torch.arange(UNITS)[None]
    whole = known(network, pairs, labels, every).double().mean().item()
    yield Row({"removed": "all", "units": UNITS}, {"accuracy": whole})


EXPERIMENT = Experiment(
    name="ffn-memory",
    claim="The feed-forward is a memory of keys and values: without a few of its rows a fact is gone, and no other.",
    source="document 001 (FFN as key-value memory); Geva et al. 2021; Dai et al. 2022",
    measure=measure,
    checks=(
        Check("facts known before", lambda f: f.at("accuracy", removed="nothing"), at_least=0.99),
        Check(
            "a fact without its 13 of 256 units: still known",
            lambda f: f.at("its fact", removed="its own", units=13),
            at_most=0.2,
        ),
        Check(
            "the other facts without these 13 units: still known",
            lambda f: f.at("other facts", removed="its own", units=13),
            at_least=0.9,
        ),
        Check(
            "a fact without 13 random units: still known",
            lambda f: f.at("its fact", removed="random", units=13),
            at_least=0.9,
        ),
        Check(
            "a fact without its 3 units: still known",
            lambda f: f.at("its fact", removed="its own", units=3),
            at_most=0.2,
            is_limit=True,
        ),
        Check(
            "facts without the whole feed-forward: still known",
            lambda f: f.at("accuracy", removed="all"),
            at_most=0.1,
            is_limit=True,
        ),
    ),
    plot=Plot(x="units", y="its fact", by="removed"),
)
