"""The first symbol of a sequence, recalled at its end: recurrent networks against attention, by distance and time."""

from collections.abc import Callable, Iterator
from time import process_time

import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead_lab.baselines import Recurrent, Translator
from clearhead_lab.experiment import Row
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
