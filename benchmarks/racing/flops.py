"""The model's FLOPs, for its FLOPs utilisation (MFU): the same for every contestant of a benchmark."""

from collections import Counter

from benchmarks.contestants.gpt import GptWorkload
from benchmarks.contestants.ours import decoder_config, network_config
from benchmarks.contestants.workload import Workload
from clearhead.training.planning.memory import Network, Setting, Shape


def flops_per_token(w: Workload | GptWorkload) -> float:
    """FLOPs of training on one target token, on average over the workload's text   (Chowdhery et al. 2022, B)

    Of matrix products alone: 2 for each multiply and add, forward once and backward twice. Real tokens only, each
    sentence as if it were alone: padding, or what is computed twice, is no work of the model's. Attention counts as a
    full matrix, a causal one too, as `clearhead profile` and `clearhead summary` count it.
    """
    if isinstance(w, GptWorkload):
        network, shapes = Network(decoder_config(w)), Counter([(0, w.length)])
    else:
        source, target = w.sentences()
        network = Network(network_config(w))
        shapes = Counter((len(s) + 1, len(t) + 1) for s, t in zip(source, target, strict=True))
    total = sum(n * forward_flops(network, *shape) for shape, n in shapes.items())
    return 3 * total / sum(n * target for (_, target), n in shapes.items())


def forward_flops(network: Network, source: int, target: int) -> int:
    """Of one row."""
    parts = network.parts(Shape(1, source=source, target=target), Setting())
    return sum(part.cost.flops for part in parts)
