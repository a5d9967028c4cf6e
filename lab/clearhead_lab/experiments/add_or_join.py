"""Positions added to words, or beside them: joined vectors are a sum whose two parts use different numbers."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead.model.positions import SinusoidalEncoding
from clearhead_lab.experiment import Check, Experiment, Figures, Plot, Row
from clearhead_lab.learning import accuracy, copying, learn, published, size, steps_to
from clearhead_lab.naive import fix_positions

SYMBOLS, LENGTH, BACK = 16, 32, 3
LEARNED = 1.0
"""The loss in nats at which the task counts as learned. In the end every kind is right, which compares nothing."""
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
    """Weights of the blocks, steps to learn to copy the symbol three places back, and the accuracy in the end."""
    for kind, widths in KINDS.items():
        made = network(*widths)
        losses = learn(made, lambda: copying(SYMBOLS, 32, LENGTH, BACK), steps=300 if quick else 600)
        values = {"weights": float(size(made.last_stack.blocks)), "steps to learn": steps_to(LEARNED, losses)}
        yield Row({"vectors": kind}, values | {"accuracy": accuracy(made, *copying(SYMBOLS, 128, LENGTH, BACK))})


def over_added(f: Figures, name: str, kind: str) -> float:
    """The figure over that of the network that adds."""
    return f.at(name, vectors=kind) / f.at(name, vectors="added")


EXPERIMENT = Experiment(
    name="add-or-join",
    claim="Joining positions to words doubles the weights and brings nothing that adding them does not.",
    source="documents 000 (15.6.2), 003 (07)",
    measure=measure,
    checks=(
        Check("added: accuracy", lambda f: f.at("accuracy", vectors="added"), at_least=0.9, role="control"),
        Check(
            "steps to learn, joined in twice the width over added",
            lambda f: over_added(f, "steps to learn", "joined, twice as wide"),
            at_least=0.9,
            otherwise="Joined positions bring something: the network learns in fewer steps than with added ones.",
        ),
        Check(
            "weights of the blocks, joined in twice the width over added",
            lambda f: over_added(f, "weights", "joined, twice as wide"),
            at_least=1.9,
            otherwise="Joined positions cost less than twice the weights.",
        ),
        Check(
            "the same, no more than double",
            lambda f: over_added(f, "weights", "joined, twice as wide"),
            at_most=2.1,
            role="limit",
            otherwise="Joining costs nearly four times the weights of the blocks, not twice, because matrices"
            " grow in both directions.",
        ),
        Check(
            "weights of the blocks, joined in the same width over added",
            lambda f: over_added(f, "weights", "joined, as wide"),
            at_least=1.9,
            role="limit",
            otherwise="Joining costs no weight at all where word and position share a vector of the same width.",
        ),
        Check(
            "steps to learn, joined in the same width over added",
            lambda f: over_added(f, "steps to learn", "joined, as wide"),
            at_least=0.9,
            role="limit",
            otherwise="In the same width too, the network learns in fewer steps with joined positions.",
        ),
    ),
    plot=Plot(x="vectors", y="steps to learn"),
)
