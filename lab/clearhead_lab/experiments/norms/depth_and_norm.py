"""The place of the norm, the depth and the warm-up: which networks learn at a high rate."""

from collections.abc import Iterator
from functools import partial

from clearhead import config as c
from clearhead_lab.experiment import Row
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
