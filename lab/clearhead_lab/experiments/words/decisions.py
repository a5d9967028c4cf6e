"""A network that reads random walks, and is then asked for a short one (Decision Transformer, Chen et al. 2021)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead_lab.experiment import Row
from clearhead_lab.learning import IGNORED, decoder, learn
from clearhead_lab.texts import Chain

NODES, WAYS, GOAL, MOST = 20, 3, 0, 12
"""Each node has ways to three others. A walk ends at the goal or after twelve steps."""
NEVER = MOST + 1
"""What stands for the steps to the goal in a walk that does not reach it."""
LIKELY = 0.02
"""The chance at which the network counts a number of steps as possible."""


def walks(graph: Chain, n: int) -> tuple[Tensor, Tensor]:
    """n t: random walks as node, steps from there to the goal, next node, and so on; and what follows each."""
    nodes = graph.text(n, MOST + 1)
    arrived = nodes == GOAL
    end = torch.where(arrived.any(1), arrived.int().argmax(1), NEVER)[:, None]
    at = torch.arange(MOST + 1)
    steps = torch.where(end == NEVER, NEVER, (end - at).clamp(min=0))
    text = torch.stack([nodes, NODES + steps], 2).flatten(1)
    after = (at > end).repeat_interleave(2, 1)
    return text[:, :-1], text.masked_fill(after, IGNORED)[:, 1:]


@torch.no_grad()
def walk(network: Transformer, graph: Chain, *, asks: bool) -> float:
    """The mean steps from every node to the goal. The network chooses each next node.

    `asks`: it is given the fewest steps that it holds possible from here, or else those that it draws itself.
    """
    text = torch.arange(1, NODES).repeat(32)[:, None]
    taken = torch.full((len(text),), float(NEVER))
    for step in range(1, MOST + 1):
        chances = network(text)[:, -1, NODES:].softmax(-1)
        fewest = (chances >= LIKELY).int().argmax(1, keepdim=True)
        text = torch.cat([text, NODES + (fewest if asks else chances.multinomial(1))], 1)
        ways = graph.next[text[:, -2]]
        chosen = network(text)[:, -1].gather(1, ways).softmax(-1).multinomial(1)
        text = torch.cat([text, ways.gather(1, chosen)], 1)
        taken = torch.where((text[:, -1] == GOAL) & (taken == NEVER), step, taken)
    return taken.mean().item()


def shortest(graph: Chain) -> float:
    """The mean of the fewest steps from every node to the goal."""
    away = torch.full((NODES,), float(NEVER))
    away[GOAL] = 0.0
    for _ in range(NODES):
        away = torch.minimum(away, 1 + away[graph.next].amin(1))
    return away[1:].mean().item()


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """Mean steps to the goal: of the walks that were read, of the network asked and not, and the fewest."""
    graph = Chain(NODES, followers=WAYS, seed=seed)
    text, _ = walks(graph, 4096)
    seen = text[text[:, 0] != GOAL, 1] - NODES
    network = decoder(NODES + NEVER + 1, positions=c.Learned(max_length=2 * MOST + 2))
    learn(network, lambda: walks(graph, 64), steps=300 if quick else 600)
    for walker, steps in {
        "walks that were read": seen.double().mean().item(),
        "network, not asked": walk(network, graph, asks=False),
        "network, asked": walk(network, graph, asks=True),
        "shortest": shortest(graph),
    }.items():
        yield Row({"walker": walker}, {"steps": steps})
