"""Which positions work beyond the length of training."""

from collections.abc import Iterator

from clearhead import config as c
from clearhead.config.positions import FIXED_BIAS
from clearhead_lab.experiment import Check, Experiment, Figures, Plot, Role, Row
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


def beyond(name: str, start: int, *, role: Role = "claim", otherwise: str = "") -> Check:
    """The accuracy beyond the length of training."""
    what = f"{name}, positions {start} to {2 * start - 1} after training on {TRAINED}: accuracy"

    def figure(f: Figures) -> float:
        return f.at("accuracy", positions=name, **{"from": start})

    return Check(what, figure, at_least=0.8, role=role, otherwise=otherwise)


EXPERIMENT = Experiment(
    name="extrapolation",
    claim="Sinusoidal positions carry over to sequences longer than those of training.",
    source="documents 000 (15.7), 001, 003 (07); Vaswani et al. 2017, 3.5; Press et al. 2021; Su et al. 2021",
    measure=measure,
    checks=(
        beyond(
            "sinusoidal",
            32,
            otherwise="Just beyond the length of training, sinusoidal positions no longer tell the network where it is,"
            " though they are defined there.",
        ),
        beyond("sinusoidal", 64, otherwise="Sinusoidal positions carry over to a text twice as long, but not further."),
        Check(
            "sinusoidal, inside the length of training: accuracy",
            lambda f: f.at("accuracy", positions="sinusoidal", **{"from": 0}),
            at_least=0.9,
            role="control",
        ),
        beyond("rotary", 32, role="control"),
    ),
    plot=Plot(x="from", y="accuracy", by="positions"),
)
