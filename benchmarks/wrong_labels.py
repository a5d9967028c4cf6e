"""`python -m benchmarks.wrong_labels`: how many of the labels that were flipped on purpose `wrong-labels` finds."""

import json
import time
from pathlib import Path

import numpy as np
from cyclopts import App

from benchmarks.entry import run_command
from clearhead.cli.judge.wrong_labels import doubt
from clearhead.tasks.classification.data import LabelledText

app = App(name="python -m benchmarks.wrong_labels", help="Precision and recall of wrong labels that were put in.")
RECALLS = (0.6, 0.8)


@app.default
def measure(
    *,
    data: Path = Path("../shared/data/sst2/train.tsv"),
    share: float = 0.05,
    folds: int = 5,
    n: int | None = None,
    seed: int = 0,
) -> None:
    """Flip a share of the labels of a TSV of texts and labels, and print precision at recall.

    Args:
        data: TSV without a header: text, label.
        share: Share of the labels to flip, to another label at random.
        folds: Parts of the texts.
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
    examples = [LabelledText((text,), (label,), f":{i}") for i, (text, label) in enumerate(rows)]
    found = doubt(examples, "single_label_classification", folds)
    is_wrong, flagged = flipped, found.wrong
    hits = is_wrong[np.argsort(found.scores, kind="stable")].cumsum()
    precision = hits / np.arange(1, len(hits) + 1)
    figures = {
        "texts": len(rows),
        "flipped": int(flipped.sum()),
        "seconds": round(time.perf_counter() - began, 1),
        "flagged": len(flagged),
        "precision_of_flagged": float(is_wrong[flagged].mean()) if len(flagged) else None,
        "recall_of_flagged": float(is_wrong[flagged].sum() / flipped.sum()),
        **{f"precision_at_recall_{r}": float(precision[hits >= r * flipped.sum()].max()) for r in RECALLS},
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    run_command(app)
