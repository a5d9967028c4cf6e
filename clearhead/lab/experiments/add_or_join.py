"""Positions added to words, or beside them: joined vectors are a sum whose two parts use different numbers."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.lab.experiment import Check, Experiment, Figures, Plot, Row
from clearhead.lab.learning import accuracy, copying, final, learn, published, size
from clearhead.lab.naive import fix_positions
from clearhead.model import Transformer
from clearhead.model.positions import SinusoidalEncoding

SYMBOLS, LENGTH, BACK = 16, 32, 3
KINDS = {
    "added": (32, 32, 32),
    "joined, twice as wide": (64, 32, 32),
    "joined, as wide": (32, 16, 16),
}
"""The width of the vectors, and how many of their numbers are for the word and for the position."""


def network(width: int, for_word: int, for_position: int) -> Transformer:
    """The word in the first numbers of each vector, a sinusoid in the last."""
    made = published(SYMBOLS, width, positions=c.Learned(max_length=LENGTH))
    positions = torch.zeros(LENGTH, width)
    sinusoids = SinusoidalEncoding(c.Sinusoidal(), for_position).embedding(torch.arange(LENGTH)[None])
    positions[:, width - for_position :] = sinusoids[0]
    fix_positions(made, positions)
    keep_free(made.last_stack.table.weight, for_word)
    return made


def keep_free(table: Tensor, n: int) -> None:
    """Keeps all but the first n numbers of each vector at 0."""
    table.data[:, n:] = 0.0
    used = (torch.arange(table.shape[1]) < n).to(table)

    def kept(gradient: Tensor) -> Tensor:
        return gradient * used

    table.register_hook(kept)


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Weights of the blocks, and accuracy and loss of copying the symbol three places back."""
    for kind, widths in KINDS.items():
        made = network(*widths)
        losses = learn(made, lambda: copying(SYMBOLS, 32, LENGTH, BACK), steps=300 if quick else 600)
        values = {"weights": float(size(made.last_stack.blocks)), "loss": final(losses)}
        yield Row({"vectors": kind}, values | {"accuracy": accuracy(made, *copying(SYMBOLS, 128, LENGTH, BACK))})


def weights_over_added(f: Figures, kind: str) -> float:
    """The weights of the blocks over those of the network that adds."""
    return f.at("weights", vectors=kind) / f.at("weights", vectors="added")


def better_added(f: Figures, kind: str) -> float:
    """The accuracy of adding less that of joining."""
    return f.at("accuracy", vectors="added") - f.at("accuracy", vectors=kind)


EXPERIMENT = Experiment(
    name="add-or-join",
    claim="Joining positions to words doubles the weights and brings nothing that adding them does not.",
    source="documents 000 (15.6.2), 003 (07)",
    measure=measure,
    checks=(
        Check("added: accuracy", lambda f: f.at("accuracy", vectors="added"), at_least=0.9, role="control"),
        Check(
            "added less joined in twice the width: accuracy",
            lambda f: better_added(f, "joined, twice as wide"),
            at_least=-0.02,
            otherwise="Joined positions, in twice the width, make the network more accurate than added ones.",
        ),
        Check(
            "weights of the blocks, joined in twice the width over added",
            lambda f: weights_over_added(f, "joined, twice as wide"),
            at_least=1.9,
            otherwise="Joined positions cost less than twice the weights.",
        ),
        Check(
            "the same, no more than double",
            lambda f: weights_over_added(f, "joined, twice as wide"),
            at_most=2.1,
            role="limit",
            otherwise="Joining costs nearly four times the weights of the blocks, not twice, because matrices"
            " grow in both directions.",
        ),
        Check(
            "weights of the blocks, joined in the same width over added",
            lambda f: weights_over_added(f, "joined, as wide"),
            at_least=1.9,
            role="limit",
            otherwise="Joining costs no weight at all where word and position share a vector of the same width.",
        ),
        Check(
            "added less joined in the same width: accuracy",
            lambda f: better_added(f, "joined, as wide"),
            at_least=0.02,
            role="limit",
            otherwise="In the same width, joined positions are as accurate as added ones.",
        ),
    ),
    plot=Plot(x="vectors", y="accuracy"),
)
