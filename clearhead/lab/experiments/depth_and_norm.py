"""The place of the norm, the depth and the warm-up: which networks learn at a high rate."""

from collections.abc import Iterator
from functools import partial

from clearhead import config as c
from clearhead.lab.experiment import Check, Experiment, Plot, Row
from clearhead.lab.learning import copying, final, learn, published

SYMBOLS, LENGTH, BACK, RATE = 16, 16, 3, 3e-3
DEEP = 12


def measure(_: int, quick: bool) -> Iterator[Row]:
    """The last loss of copying the symbol three places back; chance is ln 16 = 2.77."""
    steps = 300 if quick else 400
    for depth in (DEEP,) if quick else (3, DEEP):
        for place, warmup in (("post", 0), ("post", 100), ("pre", 0)):
            positions = c.Learned(max_length=LENGTH)
            network = published(SYMBOLS, 32, n_layers=depth, norm_place=place, positions=positions)
            batch = partial(copying, SYMBOLS, 16, LENGTH, BACK)
            losses = learn(network, batch, steps=steps, lr=RATE, warmup=warmup)
            kind = f"{place}-norm, warm-up" if warmup else f"{place}-norm"
            yield Row({"network": kind, "depth": depth}, {"loss": final(losses)})


EXPERIMENT = Experiment(
    name="depth-and-norm",
    claim="Deep post-norm networks need a warm-up; pre-norm networks learn without.",
    source="documents 000 (17.2.4, 19), 001; Xiong et al. 2020",
    measure=measure,
    checks=(
        Check(
            "post-norm, 12 deep, no warm-up: loss",
            lambda f: f.at("loss", network="post-norm", depth=DEEP),
            at_least=2.0,
        ),
        Check(
            "pre-norm, 12 deep, no warm-up: loss", lambda f: f.at("loss", network="pre-norm", depth=DEEP), at_most=0.5
        ),
        Check(
            "post-norm, 12 deep, warm-up: loss",
            lambda f: f.at("loss", network="post-norm, warm-up", depth=DEEP),
            at_most=0.5,
        ),
    ),
    plot=Plot(x="depth", y="loss", by="network", log_x=True),
)
