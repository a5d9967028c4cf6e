"""`python -m benchmarks.circuits`: how well circuits are found, against exhaustive patching, and how quickly."""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TypeVar

import torch
from cyclopts import App
from torch import Tensor

import clearhead
from benchmarks.entry import run_command
from clearhead.analysis.circuits import (
    Circuits,
    Edges,
    LogitDifference,
    Nodes,
    curve,
    patched_edges,
    patched_nodes,
    refined_edges,
    refined_nodes,
)
from clearhead.analysis.features import Features
from clearhead.api import Model
from clearhead.api.circuits import circuits_of
from clearhead.api.features import load_features
from clearhead.checkpoints.families import preset
from clearhead.explorer.recording.tokens import read
from clearhead.model import Tokens, Transformer
from clearhead.model.mode import Evaluating
from clearhead_lab.experiments.words import induction
from clearhead_lab.learning import decoder, learn

app = App(name="python -m benchmarks.circuits", help="Circuits: fidelity, time and faithfulness.")
T = TypeVar("T")
CHECKPOINTS = Path("../shared/data/checkpoints")
SENTENCES = (
    ("A man is playing a guitar.", "A man is eating a sandwich."),
    ("The cat sleeps on the sofa.", "The dog runs in the garden."),
    ("She bought a new car yesterday.", "She sold an old car yesterday."),
    ("The weather is very cold today.", "The weather is very warm today."),
    ("The children play in the park.", "The children sleep in the house."),
    ("He reads a book every night.", "He writes a letter every morning."),
    ("The train to London was late.", "The flight to Paris was early."),
    ("My sister works in a hospital.", "My brother works in a school."),
    ("The price of oil fell again.", "The price of gold rose again."),
    ("We had soup and bread for lunch.", "We had fish and rice for dinner."),
)
TRANSLATED = (
    ("The sailor slept at the bank.", "The banker slept at the bank.", "Le"),
    ("The bank near the school is steep.", "The bank near the school is closed.", "La"),
    ("She left the boat at the bank.", "She left the money at the bank.", "Elle a laissé"),
    ("Max loves apple phones.", "Max loves apple cakes.", "Max aime les"),
    ("The animal did not cross the street because it was too tired.",
     "The animal did not cross the street because it was too wide.", "L'animal n'a pas traversé la rue parce qu'"),
    ("The dog did not eat the soup because it was too tired.",
     "The dog did not eat the soup because it was too salty.", "Le chien n'a pas mangé la soupe parce qu'"),
    ("The man saw the astronomer with the mirror.", "The man met the astronomer with the mirror.", "L'homme a"),
)  # fmt: skip
"""Two sentences, and what the decoder has written when they part."""
SMALLEST = 1e-6
"""Scores and effects below this share of the largest are the rounding of float32."""
METHODS: dict[str, tuple[Callable[[Circuits], Nodes], Callable[[Circuits], Edges]]] = {
    "patching": (Circuits.nodes, Circuits.edges),
    "ig, 5 steps": (lambda circuits: circuits.nodes(steps=5), lambda circuits: circuits.edges(steps=5)),
    "refined": (refined_nodes, refined_edges),
}


@app.command
def fidelity(
    *,
    which: str = "stories15M",
    checkpoints: Path = CHECKPOINTS,
    demo: Path | None = None,
    n: int = 10,
    edges: bool = True,
    features: tuple[str, ...] = (),
) -> None:
    """Spearman's correlation of each method with exhaustive patching of every node and every edge, by pair of inputs.

    Args:
        which: stories15M, minilm or demo.
        checkpoints: Folder of the checkpoints.
        demo: Folder of a trained `clearhead demo`.
        n: Pairs of inputs.
        edges: Also measure edges, of which there are thousands.
        features: Folders of features of stories15M, which are parts of the graph.
    """
    torch.set_num_threads(1)
    several = list(_pairs(which, checkpoints, demo, n, features))
    for what in ("nodes", "edges") if edges else ("nodes",):
        found: dict[str, list[tuple[float, float]]] = {}
        for circuits in several:
            for name, row in (_of_nodes if what == "nodes" else _of_edges)(circuits).items():
                found.setdefault(name, []).append(row)
        print(f"{what:<16} {'mean':>6} {'least':>6} {'CPU s':>6}   of {len(several)} pairs", flush=True)
        for name, rows in found.items():
            ranks, took = zip(*rows, strict=True)
            each = " ".join(f"{rank:.3f}" for rank in ranks)
            print(f"{name:<16} {fmean(ranks):6.3f} {min(ranks):6.3f} {fmean(took):6.2f}   {each}", flush=True)


def _of_nodes(circuits: Circuits) -> dict[str, tuple[float, float]]:
    """By method: the correlation with exhaustive patching, and seconds of processor time."""
    exact, took = _clocked(lambda: patched_nodes(circuits))
    found = {"every one": (1.0, took)}
    for name, (by_node, _) in METHODS.items():
        nodes, took = _clocked(functools.partial(by_node, circuits))
        scores = nodes.scores
        found[name] = spearman(torch.tensor(list(exact.values())), torch.tensor([scores[at] for at in exact])), took
    return found


def _of_edges(circuits: Circuits) -> dict[str, tuple[float, float]]:
    exact, took = _clocked(lambda: patched_edges(circuits))
    found = {"every one": (1.0, took)}
    for name, (_, by_edge) in METHODS.items():
        edges, took = _clocked(functools.partial(by_edge, circuits))
        measured = torch.tensor([[exact.get((w, r), 0.0) for r in edges.readers] for w in edges.writers])
        found[name] = spearman(measured[edges.exists], edges.scores[edges.exists]), took
    return found


def _clocked(call: Callable[[], T]) -> tuple[T, float]:
    """What a call returns, and seconds of processor time."""
    began = time.process_time()
    return call(), time.process_time() - began


@app.command
def speed(*, name: str = "gpt2", length: int = 64, threads: int = 2) -> None:
    """Seconds, and seconds of processor time, of node and edge graphs of a network of random weights.

    Args:
        name: A preset.
        length: Tokens of the text.
        threads: Threads of torch.
    """
    torch.set_num_threads(threads)
    network = Transformer(preset(name)).eval()
    ids = torch.randint(0, 1000, (2, 1, length), generator=torch.Generator().manual_seed(0))
    circuits = _timed("clean and corrupt passes", lambda: Circuits(network, [ids[0]], [ids[1]], LogitDifference(5, 6)))
    nodes = _timed("nodes, at the clean text", circuits.nodes)
    _timed("nodes, ig of 5 steps", lambda: circuits.nodes(steps=5))
    _timed("nodes, refined", lambda: refined_nodes(circuits))
    _timed("nodes, each patched", lambda: patched_nodes(circuits))
    _timed("edges, at the clean text", circuits.edges)
    edges = _timed("edges, ig of 5 steps", lambda: circuits.edges(steps=5))
    _timed("a point of the faithfulness curve, 5%", lambda: next(curve(circuits, edges, (0.05,))))
    print(f"{len(nodes.positions)} nodes, {int(edges.exists.sum()):,} edges")


def _timed(what: str, call: Callable[[], T]) -> T:
    began, busy = time.perf_counter(), time.process_time()
    result = call()
    wall, used = time.perf_counter() - began, time.process_time() - busy
    print(f"{what:<40} {wall:6.1f} s, {used:6.1f} s of processor time", flush=True)
    return result


@app.command
def faithfulness(*, steps: int = 3000, n: int = 32, seed: int = 0) -> None:
    """Faithfulness of the best edges on repeated phrases, of a network that learns to continue them.

    Args:
        steps: Steps of training.
        n: Texts of the measurement.
        seed: Of everything.
    """
    torch.manual_seed(seed)
    network = decoder(induction.SYMBOLS, **induction.NETWORKS[induction.LOCAL])
    losses = learn(network, lambda: induction.batch(64), steps=steps)
    clean, corrupt, answers, others = repeats(n)
    with Evaluating(network), torch.no_grad():
        right = float((network(clean)[:, -1].argmax(-1) == answers).float().mean())
    circuits = Circuits(network, [clean], [corrupt], LogitDifference(answers.tolist(), others.tolist()))
    print(f"loss {losses[-1]:.2f}, {right:.0%} of the answers right; logit difference {circuits.ends}")
    for name, (_, by_edge) in METHODS.items():
        edges = by_edge(circuits)
        points = curve(circuits, edges, (0.01, 0.02, 0.05, 0.1, 0.2))
        shown = "  ".join(f"{point.share:.0%}: {point.faithfulness:.3f}" for point in points)
        print(f"{name:<12} of {int(edges.exists.sum())} edges  {shown}", flush=True)


def repeats(n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Texts that repeat a phrase; the same with another symbol where the answer stood; the answer and that symbol."""
    phrases = torch.rand(n, induction.SYMBOLS).argsort(1)
    period = induction.LONGEST // 2
    clean = phrases[:, :period][:, torch.arange(period + 4) % period]
    answers, others = clean[:, 4], phrases[:, period]
    corrupt = clean.clone()
    corrupt[:, 4] = others
    return clean, corrupt, answers, others


def spearman(a: Tensor, b: Tensor) -> float:
    """The correlation of ranks. Equal numbers share their mean rank; those below SMALLEST of the largest count as 0."""
    return float(torch.corrcoef(torch.stack([_ranks(a), _ranks(b)]))[0, 1])


def _ranks(x: Tensor) -> Tensor:
    x = torch.where(x.abs() < SMALLEST * x.abs().max(), 0.0, x.double())
    _, which, counts = x.unique(return_inverse=True, return_counts=True)
    return (counts.cumsum(0) - (counts - 1) / 2)[which]


def _pairs(which: str, checkpoints: Path, demo: Path | None, n: int, features: Sequence[str]) -> Iterator[Circuits]:
    """Circuits between pairs of inputs, in float32."""
    if which == "stories15M":
        model = clearhead.load(checkpoints / which)
        yield from _stories(model, n, [load_features(folder, model.network) for folder in features])
    elif which == "minilm":
        yield from _texts(clearhead.load(checkpoints / "all-MiniLM-L6-v2-fp16"), SENTENCES[:n])
    elif demo is not None:
        model = clearhead.load(demo)
        for clean, corrupt, target in TRANSLATED[:n]:
            yield circuits_of(model, read(model, clean, target).inputs, read(model, corrupt, target).inputs)[0]


def _texts(model: Model, pairs: Sequence[tuple[str, str]]) -> Iterator[Circuits]:
    """The shift of the vector between each two texts."""
    for clean, corrupt in pairs:
        yield circuits_of(model, read(model, clean).inputs, read(model, corrupt).inputs)[0]


@torch.no_grad()
def _stories(
    model: Model, n: int, features: Sequence[Features], *, length: int = 10, seed: int = 1
) -> Iterator[Circuits]:
    """Texts that the model writes, and the same with another token at one place, where that changes what follows."""
    known: set[tuple[int, ...]] = set()
    network, random = model.network.float(), torch.Generator().manual_seed(seed)
    while n:
        ids = torch.ones(1, 1, dtype=torch.long)
        while ids.shape[1] < length:
            ids = torch.cat([ids, _drawn(network, ids, random)], 1)
        at = int(torch.randint(length // 3, length - 2, (1,), generator=random))
        other = ids.clone()
        other[:, at] = _drawn(network, ids[:, :at], random, but=int(ids[0, at]))
        circuits, explained = circuits_of(model, [Tokens(ids)], [Tokens(other)], features=features)
        likeliest = int(circuits.results[1][0, -1].argmax())
        pair = tuple(torch.cat([ids, other]).flatten().tolist())
        if explained.answer != likeliest and pair not in known:
            known.add(pair)
            n -= 1
            yield circuits


def _drawn(network: Transformer, ids: Tensor, random: torch.Generator, *, but: int | None = None) -> Tensor:
    """1 1: the next token, never `but`."""
    logits = network(ids)[0, -1]
    if but is not None:
        logits[but] = -torch.inf
    return torch.multinomial(logits.softmax(-1), 1, generator=random)[None]


if __name__ == "__main__":
    run_command(app)
