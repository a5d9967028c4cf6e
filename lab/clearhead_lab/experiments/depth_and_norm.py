"""The place of the norm, the depth and the warm-up: which networks learn at a high rate."""

from collections.abc import Iterator
from functools import partial

from clearhead import config as c
from clearhead_lab.experiment import Check, Experiment, Figures, Plot, Row
from clearhead_lab.learning import copying, final, learn, published

SYMBOLS, LENGTH, BACK, RATE, STEPS = 16, 8, 1, 3e-3, 320
"""Short texts and the symbol before: a task so easy that only the network decides whether it is learned."""
SHALLOW, DEEP = 2, 12
POST, WARMED, PRE = "post-norm", "post-norm, warm-up", "pre-norm"
NETWORKS = {POST: ("post", 0), WARMED: ("post", 100), PRE: ("pre", 0)}


def measure(*_: object) -> Iterator[Row]:
    """The last loss of copying the previous symbol; chance is ln 16 = 2.77. The sizes are small enough for `quick`."""
    for depth in (SHALLOW, DEEP):
        for kind, (place, warmup) in NETWORKS.items():
            network = published(SYMBOLS, 32, n_layers=depth, norm_place=place, positions=c.Sinusoidal())
            batch = partial(copying, SYMBOLS, 32, LENGTH, BACK)
            losses = learn(network, batch, steps=STEPS, lr=RATE, warmup=warmup)
            yield Row({"network": kind, "depth": depth}, {"loss": final(losses)})


def loss(f: Figures, network: str, depth: int = DEEP) -> float:
    """The last loss."""
    return f.at("loss", network=network, depth=depth)


EXPERIMENT = Experiment(
    name="depth-and-norm",
    claim="Deep post-norm networks need a warm-up; pre-norm networks learn without.",
    source="documents 000 (17.2.4, 19), 001; Xiong et al. 2020",
    measure=measure,
    checks=(
        Check(
            "post-norm, 12 deep, no warm-up: loss",
            lambda f: loss(f, POST),
            at_least=2.0,
            otherwise="A deep post-norm network learns without a warm-up as well.",
        ),
        Check(
            "post-norm, 12 deep, warm-up: loss",
            lambda f: loss(f, WARMED),
            at_most=0.5,
            otherwise="A warm-up of 100 steps does not help a deep post-norm network.",
        ),
        Check(
            "pre-norm, 12 deep, no warm-up: loss",
            lambda f: loss(f, PRE),
            at_most=0.5,
            otherwise="A deep pre-norm network does not learn without a warm-up either.",
        ),
        Check("post-norm, 2 deep, no warm-up: loss", lambda f: loss(f, POST, SHALLOW), at_most=0.5, role="control"),
        Check("pre-norm, 2 deep, no warm-up: loss", lambda f: loss(f, PRE, SHALLOW), at_most=0.5, role="control"),
    ),
    plot=Plot(x="depth", y="loss", by="network", log_x=True),
)
