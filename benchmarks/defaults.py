"""`python -m benchmarks.defaults FILES`: what `clearhead train FILE` scores on new texts, beside TF-IDF + LR."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cyclopts import App
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from benchmarks.entry import run_command
from clearhead.api import load
from clearhead.runs import start
from clearhead.session.recipes import recipe_of
from clearhead.session.running import record
from clearhead.tasks.classification.data import LabelledText
from clearhead.tasks.classification.task import Classification, ClassificationRecipe
from clearhead.tasks.scores import Score
from clearhead.tasks.task import Given

app = App(name="python -m benchmarks.defaults", help="Classifiers with defaults, beside TF-IDF + LR on the same texts.")


@dataclass(frozen=True)
class Row:
    """The scores of one table."""

    name: str
    train: int
    ours: Score
    linear: float | None
    """The better of C = 1 and 10 on these texts; None for numbers."""
    seconds: float
    """CPU seconds of ours: data, floors, first weights and training."""

    @property
    def cells(self) -> Iterator[str]:
        """What stands in its line."""
        low, high = self.ours.interval or (self.ours.value, self.ours.value)
        yield from (self.name, f"{self.train:,}", f"{len(self.ours.rows or ()):,}")
        yield f"{100 * self.ours.value:.1f} ({100 * low:.1f} to {100 * high:.1f})"
        yield "" if self.linear is None else f"{100 * self.linear:.1f}"
        yield "" if self.linear is None else "yes" if high >= self.linear else "no"
        yield f"{self.seconds:.0f}"


@app.default
def measure(files: tuple[Path, ...], *, seed: int = 0) -> None:
    """Print one table, with a line for each file.

    Args:
        files: Tables of texts and labels; NAME.test.SUFFIX beside NAME.SUFFIX is its test.
        seed: Seed of each run.
    """
    print("| table | train | test | clearhead | TF-IDF + LR | within | CPU s |\n|---|--:|--:|--:|--:|---|--:|")
    for file in files:
        print("|", " | ".join(measured(file, seed).cells), "|", flush=True)


def measured(file: Path, seed: int) -> Row:
    """Trains on a table with defaults. Scores that and the linear model on its test."""
    began, test = time.process_time(), file.with_suffix(f".test{file.suffix}")
    files: dict[str, Given] = {"train": {}, "test": {"data": str(test)} if test.exists() else {}}
    recipe = recipe_of(str(file), ["--training.seed", str(seed)], short={}, files=files)
    assert isinstance(recipe, ClassificationRecipe)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        run, prepared = start(recipe, folder)
        for _ in record(run, prepared, folder):
            pass
        seconds, task = time.process_time() - began, prepared.task
        read = {name: Classification.read(source, recipe.data) for name, source in recipe.data.sources.items()}
        splits = Classification.split(read, recipe.data)
        assert isinstance(task, Classification)
        found = task.score(load(folder).network, task.encode(splits["test"])).score(task.main_score)
    is_number = recipe.data.problem_type == "regression"
    return Row(file.stem, len(splits["train"]), found, None if is_number else linear(**splits), seconds)


def linear(*, train: Sequence[LabelledText], test: Sequence[LabelledText], **_: Sequence[LabelledText]) -> float:
    """The accuracy of the better of two linear models."""
    (known, answers), (new, wanted) = (
        ([" ".join(one.texts) for one in some], [one.labels[0] for one in some]) for some in (train, test)
    )
    models = [make_pipeline(TfidfVectorizer(), LogisticRegression(C=C, max_iter=1000)) for C in (1, 10)]
    return max(float(model.fit(known, answers).score(new, wanted)) for model in models)


if __name__ == "__main__":
    run_command(app)
