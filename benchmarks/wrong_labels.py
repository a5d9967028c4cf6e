"""`python -m benchmarks.wrong_labels`: how many of the labels that were flipped on purpose `wrong-labels` finds."""

import json
import tempfile
import time
from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import App, Parameter

from benchmarks.entry import run_command
from clearhead.cli.judge.suspects import classifier_of, judged, parts_of

app = App(name="python -m benchmarks.wrong_labels", help="Precision and recall of wrong labels that were put in.")
RECALLS = (0.6, 0.8)


@app.default
def measure(
    *changes: Annotated[str, Parameter(allow_leading_hyphen=True)],
    data: Path = Path("../shared/data/sst2/train.tsv"),
    share: float = 0.05,
    folds: int = 3,
    models: int = 1,
    n: int | None = None,
    seed: int = 0,
) -> None:
    """Flip a share of the labels of a TSV of texts and labels, train the folds, and print precision at recall.

    Args:
        changes: Fields of the recipe, such as --model.start FOLDER --training.epochs 2.
        data: TSV without a header: text, label.
        share: Share of the labels to flip, to another label at random.
        folds: Parts of the texts.
        models: Models to train for each part.
        n: Use the first n texts only.
        seed: Seed of the flips.
    """
    rows = [line.rsplit("\t", 1) for line in data.read_text(encoding="utf-8").splitlines() if line.strip()][:n]
    names, random = sorted({label for _, label in rows}), np.random.default_rng(seed)
    flipped = np.zeros(len(rows), dtype=bool)
    flipped[random.permutation(len(rows))[: round(share * len(rows))]] = True
    for i in np.flatnonzero(flipped):
        rows[i][1] = random.choice([name for name in names if name != rows[i][1]])
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch, "flipped.tsv")
        table.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
        recipe = classifier_of(str(table), changes, short={}, columns={"label": None, "text_pair": None}, text=None)
        found = judged(recipe, *parts_of(recipe, folds), Path(scratch), models)
    numbers = [int(example.where.rpartition(":")[2]) - 1 for example in found.examples]
    is_wrong = flipped[numbers]
    flagged = [doubt.example for doubt in found.doubts.found]
    hits = is_wrong[np.argsort(found.doubts.scores, kind="stable")].cumsum()
    precision = hits / np.arange(1, len(hits) + 1)
    figures = {
        "texts": len(rows),
        "flipped": int(flipped.sum()),
        "seconds": round(time.perf_counter() - began, 1),
        "flagged": len(flagged),
        "precision_of_flagged": float(is_wrong[flagged].mean()) if flagged else None,
        "recall_of_flagged": float(is_wrong[flagged].sum() / flipped.sum()),
        **{f"precision_at_recall_{r}": float(precision[hits >= r * flipped.sum()].max()) for r in RECALLS},
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    run_command(app)
