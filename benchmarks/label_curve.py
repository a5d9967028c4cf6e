"""`python -m benchmarks.label_curve`: accuracy by the number of labels, of a pretrained network and of a new one."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cyclopts import App

from benchmarks.entry import run_command
from clearhead import recipe as recipes
from clearhead.cli.judge.suspects import trained
from clearhead.recipe.data import Table
from clearhead.tasks.classification.data import ClassificationData, LabelledText, names_of, read_labelled
from clearhead.tasks.classification.task import ClassificationRecipe, head_of
from clearhead.tasks.registry import validate

app = App(name="python -m benchmarks.label_curve", help="Accuracy by the number of labels.")
SIZES = (20, 50, 100, 200, 500, 2000)
PASSES = {"pretrained": (600, 2.0), "new": (2000, 6.0)}
"""Texts that a network reads at least, and epochs at least."""
RESAMPLES = 1000


@dataclass(frozen=True)
class Point:
    """The mean accuracy of the networks of all seeds, with its 95% interval."""

    network: str
    labels: int
    accuracy: float
    interval: tuple[float, float]
    seconds: float


@app.default
def measure(
    *,
    data: Path = Path("../shared/data/sst2"),
    start: Path = Path("../shared/data/checkpoints/all-MiniLM-L6-v2-fp16"),
    sizes: tuple[int, ...] = SIZES,
    seeds: int = 3,
    tests: int = 600,
    threads: int = 2,
    out: Path = Path("docs/label-curve.svg"),
) -> None:
    """Train on samples of each size with each seed, test on one part of the test data, and draw the curve.

    Args:
        data: Folder with train.tsv and test.tsv: text, label.
        start: Checkpoint of the pretrained network.
        sizes: Numbers of labels, each with its share of every label.
        seeds: Samples, and networks, of each size.
        tests: Test texts.
        threads: CPU threads.
        out: The picture.
    """
    train, test = (read(data / f"{name}.tsv") for name in ("train", "test"))
    judged = sample(test, tests, seed=0)
    points: list[Point] = []
    for network in PASSES:
        for size in sizes:
            began = time.perf_counter()
            hits: list[np.ndarray] = []
            for seed in range(seeds):
                recipe = recipe_of(network, size, start=start, seed=seed, threads=threads)
                model, shares = trained(recipe, sample(train, size, seed=seed), judged)
                names = head_of(model.config).labels
                said = [names[i] for i in shares.argmax(1).tolist()]
                hits.append(np.array([one == e.labels[0] for one, e in zip(said, judged, strict=True)]))
            point = Point(network, size, *interval(np.stack(hits)), round(time.perf_counter() - began, 1))
            print(json.dumps(vars(point)), flush=True)
            points.append(point)
    draw(points, out)
    print(*table(points), sep="\n")


def read(path: Path) -> list[LabelledText]:
    """The texts of a file that are not blank."""
    source = Table(path=path, text=0)
    return [e for e in read_labelled(source, ClassificationData(train=source, label=1)) if not e.is_blank]


def sample(examples: Sequence[LabelledText], n: int, *, seed: int) -> list[LabelledText]:
    """n examples drawn at random, with each label's share."""
    shuffled = [examples[i] for i in np.random.default_rng(seed).permutation(len(examples))]
    share = {name: sum(e.labels == (name,) for e in examples) / len(examples) for name in names_of(examples)}
    wanted = {name: round(n * part) for name, part in share.items()}
    return [e for name, count in wanted.items() for e in [e for e in shuffled if e.labels == (name,)][:count]]


def recipe_of(network: str, size: int, *, start: Path, seed: int, threads: int) -> ClassificationRecipe:
    """The classification recipe with the epochs and small batches that suit few labels."""
    passes, epochs = PASSES[network]
    training = {
        "epochs": max(epochs, passes / size),
        "max_tokens": 256 if size < 1000 else 1024,
        "seed": seed,
        "threads": threads,
        "schedule": {"kind": "wsd", "warmup": 5, "decay_fraction": 0.9},
    }
    changes = {"training": training, "data": {"train": {"path": "unused"}}}
    model = {"model": {"start": str(start.absolute())}} if network == "pretrained" else {}
    recipe = validate(recipes.changed(recipes.read("classification"), changes | model), where="label_curve")
    assert isinstance(recipe, ClassificationRecipe)
    return recipe


def interval(hits: np.ndarray) -> tuple[float, tuple[float, float]]:
    """The mean, and the 95% bootstrap interval over seeds and texts together; seeds texts."""
    random, (n_seeds, n_texts) = np.random.default_rng(0), hits.shape
    draws = [
        hits[np.ix_(random.integers(n_seeds, size=n_seeds), random.integers(n_texts, size=n_texts))].mean()
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(hits.mean()), (float(low), float(high))


def draw(points: Sequence[Point], out: Path) -> None:
    """The curve of each network with its intervals."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for network in PASSES:
        some = [point for point in points if point.network == network]
        errors = [[p.accuracy - p.interval[0] for p in some], [p.interval[1] - p.accuracy for p in some]]
        places = [p.labels for p in some], [p.accuracy for p in some]
        axes.errorbar(*places, yerr=errors, marker="o", capsize=3, label=network)
    axes.set(xscale="log", xlabel="labels", ylabel="test accuracy, 95% interval")
    axes.legend()
    figure.savefig(out, metadata={"Date": None})


def table(points: Sequence[Point]) -> list[str]:
    """The points as a table in Markdown."""
    rows = [
        f"| {p.network} | {p.labels:,} | {p.accuracy:.1%} ({low:.1%} to {high:.1%}) | {p.seconds:.0f} |"
        for p in points
        for low, high in [p.interval]
    ]
    return ["| network | labels | accuracy, 95% interval | seconds |", "|---|---|---|---|", *rows]


if __name__ == "__main__":
    run_command(app)
