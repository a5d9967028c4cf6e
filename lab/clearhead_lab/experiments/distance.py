"""The first symbol of a sequence, recalled at its end: recurrent networks against attention, by distance and time."""

from collections.abc import Callable, Iterator
from time import process_time

import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead_lab.baselines import Recurrent, Translator
from clearhead_lab.experiment import Check, Experiment, Figures, Plot, Row
from clearhead_lab.learning import accuracy, decoder, learn, steps_to

SYMBOLS, WIDTH, BATCH = 16, 64, 32
FAR = 64
LEARNED = 0.5
"""The loss, in nats, at which a network counts as having learned. It starts at ln 16 = 2.77."""


def transformer() -> nn.Module:
    """Two causal blocks; the last state says the symbol."""
    head = c.ClassificationHead(n_labels=SYMBOLS, pool="last")
    return decoder(SYMBOLS, head=head, d_model=WIDTH, positions=c.Learned(max_length=FAR))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "RNN": lambda: Recurrent("RNN", SYMBOLS, WIDTH),
    "LSTM": lambda: Recurrent("LSTM", SYMBOLS, WIDTH),
    "GRU": lambda: Recurrent("GRU", SYMBOLS, WIDTH),
    "LSTM to LSTM": lambda: Translator(SYMBOLS, WIDTH, attention=False),
    "with additive attention": lambda: Translator(SYMBOLS, WIDTH, attention=True),
    "Transformer": transformer,
}


def batch(n: int, length: int) -> tuple[Tensor, Tensor]:
    """Random symbols, and the first of each sequence."""
    tokens = torch.randint(0, SYMBOLS, (n, length))
    return tokens, tokens[:, 0]


def gradients(network: nn.Module, length: int) -> tuple[float, float]:
    """The size of the gradient of the loss at the first symbol's vector, and at the last one's."""
    seen: list[Tensor] = []

    def keep(_module: object, _inputs: object, out: Tensor) -> None:
        out.retain_grad()
        seen.append(out)

    embed = next(module for name, module in network.named_modules() if name.rpartition(".")[2] == "embed")
    handle = embed.register_forward_hook(keep)
    tokens, labels = batch(64, length)
    network(tokens, labels=labels).backward()
    handle.remove()
    network.zero_grad()
    assert seen[0].grad is not None
    sizes = seen[0].grad.norm(dim=2).mean(0)
    return sizes[0].item(), sizes[-1].item()


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Gradient at the start, accuracy, steps and seconds until a network has learned, by distance.

    The seconds are those of the processor, which runs one thread: wall time where nothing else runs.
    """
    steps = 200 if quick else 300
    for length in (8, FAR) if quick else (8, 16, 32, FAR):
        for name, build in NETWORKS.items():
            network = build()
            first, last = gradients(network, length)
            begun = process_time()
            losses = learn(network, lambda length=length: batch(BATCH, length), steps=steps)
            seconds = process_time() - begun
            needed = steps_to(LEARNED, losses)
            values = {
                "accuracy": accuracy(network, *batch(256, length)),
                "gradient at the first symbol over the last": first / last,
                "steps to learn": needed,
                "ms a step": 1000 * seconds / len(losses),
                "seconds to learn": seconds * needed / len(losses),
            }
            yield Row({"network": name, "distance": length}, values)


def far(f: Figures, network: str, figure: str = "accuracy") -> float:
    """A figure at the longest distance."""
    return f.at(figure, network=network, distance=FAR)


RATIO = "gradient at the first symbol over the last"
EXPERIMENT = Experiment(
    name="distance",
    claim="Recurrent networks forget the start of a sequence; attention reaches every position, and trains faster.",
    source="documents 002, 003 (5, 8); Bengio et al. 1994; Bahdanau et al. 2015; Vaswani et al. 2017, table 1",
    measure=measure,
    checks=(
        Check(
            "Transformer, 64 symbols away: accuracy",
            lambda f: far(f, "Transformer"),
            at_least=0.95,
            otherwise="The Transformer does not recall the first of 64 symbols.",
        ),
        Check(
            "RNN, 64 symbols away: accuracy",
            lambda f: far(f, "RNN"),
            at_most=0.3,
            otherwise="The RNN recalls the first of 64 symbols.",
        ),
        Check(
            "LSTM, 64 symbols away: accuracy",
            lambda f: far(f, "LSTM"),
            at_most=0.5,
            otherwise="The LSTM recalls the first of 64 symbols.",
        ),
        Check(
            "GRU, 64 symbols away: accuracy",
            lambda f: far(f, "GRU"),
            at_most=0.5,
            otherwise="The GRU recalls the first of 64 symbols.",
        ),
        Check(
            "LSTM to LSTM, 64 symbols away: accuracy",
            lambda f: far(f, "LSTM to LSTM"),
            at_most=0.5,
            otherwise="The pair of LSTMs recalls the first of 64 symbols without attention.",
        ),
        Check(
            "LSTM to LSTM with additive attention, 64 symbols away: accuracy",
            lambda f: far(f, "with additive attention"),
            at_least=0.9,
            otherwise="Additive attention does not bring the first of 64 symbols back.",
        ),
        Check(
            "RNN, 64 symbols away: gradient at the first over the last",
            lambda f: far(f, "RNN", RATIO),
            at_most=1e-6,
            otherwise="The RNN's gradient reaches the first of 64 symbols.",
        ),
        Check(
            "Transformer, 64 symbols away: gradient at the first over the last",
            lambda f: far(f, "Transformer", RATIO),
            at_least=1e-3,
            otherwise="The Transformer's gradient does not reach the first of 64 symbols.",
        ),
        Check(
            "LSTM, 8 symbols away: accuracy",
            lambda f: f.at("accuracy", network="LSTM", distance=8),
            at_least=0.9,
            role="control",
        ),
        Check(
            "64 symbols on one thread: milliseconds a step of the LSTM over the Transformer's",
            lambda f: far(f, "LSTM", "ms a step") / far(f, "Transformer", "ms a step"),
            at_least=1.0,
            role="limit",
            otherwise="Recurrent networks forget, but attention does not train faster on one thread: a step of the"
            " Transformer takes longer than one of the LSTM.",
        ),
    ),
    plot=Plot(x="distance", y="accuracy", by="network", log_x=True),
)
