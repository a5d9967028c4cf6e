"""One table for input and output words, or two."""

from collections.abc import Iterator

import torch

from clearhead import config as c
from clearhead_lab.experiment import Check, Experiment, Plot, Row
from clearhead_lab.learning import decoder, learn, mean_loss, size
from clearhead_lab.texts import Chain

WORDS, WIDTH, LENGTH = 200, 64, 32


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """Parameters, and the loss on new text of a random language."""
    chain = Chain(WORDS, followers=8, seed=seed)
    for tied in (True, False):
        network = decoder(WORDS, head=c.LanguageHead(tied=tied), d_model=WIDTH, positions=c.Learned(max_length=LENGTH))
        learn(network, lambda: chain.batch(32, LENGTH), steps=300 if quick else 800)
        with torch.no_grad():
            valid = sum(mean_loss(network, *chain.batch(32, LENGTH)).item() for _ in range(4)) / 4
        values = {"weights": float(size(network)), "loss": valid, "least": chain.entropy}
        yield Row({"tables": "one" if tied else "two"}, values)


EXPERIMENT = Experiment(
    name="weight-tying",
    claim="One table for input and output saves vocabulary x width weights and costs no quality.",
    source="document 001; Press and Wolf 2017",
    measure=measure,
    checks=(
        Check(
            "weights saved over 200 x 64",
            lambda f: (f.at("weights", tables="two") - f.at("weights", tables="one")) / (WORDS * WIDTH),
            at_least=1.0,
            at_most=1.0,
            otherwise="One table does not save vocabulary x width weights.",
        ),
        Check(
            "loss with one table less that with two",
            lambda f: f.at("loss", tables="one") - f.at("loss", tables="two"),
            at_most=0.05,
            otherwise="One table costs quality.",
        ),
        Check(
            "loss with one table less the language's entropy",
            lambda f: f.at("loss", tables="one") - f.at("least", tables="one"),
            at_most=0.3,
            role="control",
        ),
    ),
    plot=Plot(x="tables", y="loss"),
)
