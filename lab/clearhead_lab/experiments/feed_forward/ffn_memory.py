"""Facts learned by heart, and what is forgotten with a few units of the feed-forward."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead.trace import Edit, trace
from clearhead_lab.experiment import Row
from clearhead_lab.learning import IGNORED, accuracy, decoder, learn

SUBJECTS, RELATIONS, OBJECTS = 48, 8, 48
WIDTH, UNITS = 16, 1024
"""So narrow that attention alone cannot keep the facts, and with more units than facts."""
FEW, SOME, MANY = 10, 51, 102
"""A hundredth of the units, a twentieth and a tenth."""
TRIED = 32
"""Facts of which the units are removed."""
POST, ATTENTION = "decoder.blocks.0.ffn.post", "decoder.blocks.0.attn"


def facts() -> tuple[Tensor, Tensor]:
    """n 2: every subject with every relation, and for each pair an object drawn at random, n 2, at the second place."""
    subjects, relations = torch.arange(SUBJECTS), SUBJECTS + torch.arange(RELATIONS)
    pairs = torch.cartesian_prod(subjects, relations)
    objects = SUBJECTS + RELATIONS + torch.randint(0, OBJECTS, (len(pairs),))
    return pairs, torch.stack([torch.full_like(objects, IGNORED), objects], 1)


def build() -> Transformer:
    """One block that reads a subject and a relation."""
    vocab_size = SUBJECTS + RELATIONS + OBJECTS
    return decoder(vocab_size, d_model=WIDTH, n_layers=1, d_ff=UNITS, positions=c.Learned(max_length=2))


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
    """m n, bool: which of the n facts are still known without the units that each row of `removed`, m k, names."""
    closed = torch.zeros(len(removed), UNITS, dtype=torch.bool).scatter_(1, removed, value=True)
    closed = closed.repeat_interleave(len(pairs), 0)[:, None]
    edit: dict[str, Edit] = {POST: lambda post: post.masked_fill(closed, 0.0)}
    with trace(network, edit, without=("heads",)):
        answers = network(pairs.repeat(len(removed), 1))[:, -1].argmax(-1)
    return answers.view(len(removed), -1) == labels[:, -1]


@torch.no_grad()
def read_at_subject(network: Transformer, pairs: Tensor, labels: Tensor) -> dict[str, float]:
    """The mean weight from the relation to the subject, and the share of answers that follow another subject's value.

    Each fact gets the value of the subject before it in the list, and keeps its own key.
    """
    edit: dict[str, Edit] = {f"{ATTENTION}.v[s=0]": lambda v: v.roll(RELATIONS, 0)}
    with trace(network, edit) as seen:
        answers = network(pairs)[:, -1].argmax(-1)
    own, other = labels[:, -1], labels[:, -1].roll(RELATIONS)
    follows = (answers == other)[own != other].double().mean().item()
    return {"weight": seen[f"{ATTENTION}.weights[t=1,s=0]"].mean().item(), "follows": follows}


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Accuracy on a fact and on the others without the units that say most of it, or as many at random."""
    pairs, labels = facts()
    network = build()
    learn(network, lambda: (pairs, labels), steps=400 if quick else 1000)
    yield Row({"removed": "nothing", "units": 0}, {"accuracy": accuracy(network, pairs, labels)})
    yield Row({"exchanged": "value of the subject"}, read_at_subject(network, pairs, labels))
    tried = torch.randperm(len(pairs))[:TRIED]
    own = tried[:, None] == torch.arange(len(pairs))
    ranked = contributions(network, pairs, labels)[tried].argsort(1, descending=True)
    for k in (FEW, SOME, MANY):
        for which, order in (("its own", ranked), ("random", torch.rand(ranked.shape).argsort(1))):
            left = known(network, pairs, labels, order[:, :k]).double()
            values = {"its fact": left[own].mean().item(), "other facts": left[~own].mean().item()}
            yield Row({"removed": which, "units": k}, values)
    whole = known(network, pairs, labels, torch.arange(UNITS)[None]).double().mean().item()
    yield Row({"removed": "all", "units": UNITS}, {"accuracy": whole})
