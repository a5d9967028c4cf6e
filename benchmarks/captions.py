"""`python -m benchmarks.captions`: a picture model learns captions from small random towers, and where its words look.

2,000 pictures of shapes, drawn from a seed, are learnt through `clearhead.train`; 300 others are held out. Two figures:
the share of held-out captions that are written exactly, and the share of the words that name a shape whose attention
lies on it. The attention of a word is that of the position which writes it to the vectors of the picture, the mean of
all heads of all blocks of the decoder; it lies on the shape if the vector with the most of it is of a patch that the
shape, or one of the shapes that the word names, covers at least in part. Chance is the share of such patches.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cyclopts import App

import clearhead
from benchmarks.entry import run_command
from benchmarks.figures import Figure, show
from benchmarks.scenes import PLURALS, SHAPES, SIDE, Scene, scenes, write_scenes
from clearhead.trace import trace

app = App(
    name="python -m benchmarks.captions", help="Captions of shapes: exact ones, and words that look at the shape."
)
PROMPT = "what is here ?"
NAMED = {*SHAPES, *PLURALS.values()}


def looks(model: clearhead.Model, scene: Scene) -> list[tuple[bool, float]]:
    """For each word that names a shape: whether its attention lies on the shape, and the chance of that."""
    (tokens,) = model.inputs(f"{PROMPT} {scene.caption}", image=scene.picture)
    seen = model.config.pictures
    assert seen is not None
    with torch.no_grad(), trace(model.network) as found:
        model.network(tokens)
    n = model.config.output.n_layers
    weights = torch.stack([found[f"decoder.blocks.{i}.attn.weights"][0] for i in range(n)]).mean((0, 1))
    ids = tokens.ids[0].tolist()
    first, side = ids.index(seen.mark_id), seen.side
    names = [model.tokenizer.decode([i]).strip() for i in ids]
    places = [at for at, name in enumerate(names) if name in NAMED]
    results: list[tuple[bool, float]] = []
    for at, mask in zip(places, scene.places, strict=True):
        covered = mask.reshape(side, SIDE // side, side, SIDE // side).any((1, 3)).ravel()
        most = int(weights[at - 1, first : first + seen.n_marks].argmax())
        results.append((bool(covered[most]), float(covered.mean())))
    return results


@app.default
def captions(
    *,
    steps: int = 2800,
    n: int = 2000,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Trains, and prints both figures with the seconds of the processor."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        table, valid = write_scenes(folder / "train", n, seed=seed), write_scenes(folder / "valid", 300, seed=seed + 1)
        begun, before = time.perf_counter(), time.process_time()
        fields: dict[str, Any] = {
            "data.prompt": PROMPT,
            "augment": {"shift": 1, "flip": True},
            "model": {"pictures": {"tower": {"input": {"image_size": SIDE, "patch_size": SIDE // 3}}}},
            "training": {"evaluate_every": 100_000, "minutes": None, "steps": steps},
        }
        where = out or folder / "run"
        run = clearhead.train(str(table), task="captions", valid=str(valid), out=where, seed=seed, view=False, **fields)
        cpu, wall = time.process_time() - before, time.perf_counter() - begun
        exact = run.evaluate(str(valid)).value("exact_match")
        found = [one for scene in scenes(300, seed=seed + 1) for one in looks(run.model, scene)]
    hits, chance = np.array(found).mean(0).tolist()
    size = sum(one.numel() for one in run.model.network.parameters())
    figures = [
        Figure("held-out captions that are exact", exact, 0.9),
        Figure(f"words whose attention lies on their shape (chance {chance:.3f})", hits, 0.8),
        Figure("seconds of the processor, with reading and evaluation", cpu, 240, at_most=True),
    ]
    show(f"Captions of {n:,} pictures, {size:,} parameters, {wall:.0f} s", figures)


if __name__ == "__main__":
    run_command(app)
