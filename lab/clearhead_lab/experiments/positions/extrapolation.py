"""Which positions work beyond the length of training."""

from collections.abc import Iterator

from clearhead import config as c
from clearhead.config.positions import FIXED_BIAS
from clearhead_lab.experiment import Row
from clearhead_lab.learning import IGNORED, accuracy, copying, learn, published

SYMBOLS, BACK, TRAINED, LONG = 16, 3, 32, 128
ENCODINGS = (
    c.Sinusoidal(),
    c.Learned(max_length=LONG),
    c.Rotary(),
    FIXED_BIAS,
    c.RelativeBias(n_buckets=16, max_distance=32),
)


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Accuracy of copying the symbol three places back, inside and beyond the length of training."""
    for positions in ENCODINGS:
        network = published(SYMBOLS, positions=positions)
        learn(network, lambda: copying(SYMBOLS, 32, TRAINED, BACK), steps=250 if quick else 400)
        tokens, labels = copying(SYMBOLS, 32, LONG, BACK)
        for start, end in ((0, 32), (32, 64), (64, 128)):
            within = labels.clone()
            within[:, :start], within[:, end:] = IGNORED, IGNORED
            yield Row({"positions": positions.label, "from": start}, {"accuracy": accuracy(network, tokens, within)})
