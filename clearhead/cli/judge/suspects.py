"""Which texts of a table have labels that models which did not learn from them do not believe."""

import json
import shlex
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clearhead import recipe as recipes
from clearhead.api import Model, model_folder
from clearhead.checkpoints.weights.documents import read_json
from clearhead.cli.judge.doubts import Doubts, doubts, joined, opinion
from clearhead.cli.options import tell
from clearhead.data.splits import hold_out
from clearhead.errors import Interrupted, UserError, pasted
from clearhead.json_text import JsonObject
from clearhead.model.heads import scores
from clearhead.model.target_scaling import settled
from clearhead.runs import begin
from clearhead.session.recipes import recipe_of, tables_given
from clearhead.tasks.classification.data import LabelledText, names_of, read_labelled
from clearhead.tasks.classification.task import Classification, ClassificationRecipe, head_of, logits_of
from clearhead.tasks.registry import validate
from clearhead.training.consumers import ProgressBar
from clearhead.training.events import Ended
from clearhead.training.run import Run
from clearhead.training.run_folder import RECIPE
from clearhead.training.train import train

NEVER = 1 << 60


@dataclass(frozen=True)
class Suspects:
    """Examples, what models that did not learn from them say of each, and which labels are likely wrong."""

    examples: Sequence[LabelledText]
    names: Sequence[str]
    folds: np.ndarray
    """n: the fold whose models judge each example."""
    outputs: np.ndarray
    """n v: the probability of each label, of the models of the fold and a linear one together, or the number."""
    doubts: Doubts

    def rows(self, folder: Path) -> Iterator[JsonObject]:
        """The likely wrong labels; each with the command that shows the text to a model that judged it."""
        for doubt in self.doubts.found:
            example = self.examples[doubt.example]
            model = pasted(folder / f"fold-{self.folds[doubt.example] + 1}")
            yield {
                "row": example.place,
                **doubt.values,
                "score": float(self.doubts.scores[doubt.example]),
                "texts": [*example.texts],
                "explore": f"clearhead explore {model} {shlex.quote(example.texts[0])}",
            }


def classifier_of(
    name: str,
    changes: Sequence[str],
    *,
    short: Mapping[str, object],
    columns: Mapping[str, str | None],
    text: str | None,
) -> ClassificationRecipe:
    """The recipe of a run, of a recipe file, or of a table with these columns, with changes.

    Raises UserError unless it gives labels to texts.
    """
    if Path(name).is_dir():
        path = model_folder(Path(name)) / RECIPE
        if not path.is_file():
            raise UserError(f"{name}: expected a run, got a model without {RECIPE}; give the table instead")
        given = tables_given(changes, short, options=("text", "label", "text_pair", "folds", "models", "out", "json"))
        recipe = validate(recipes.changed(read_json(path), given), where=str(path))
    else:
        files = {"train": {"text": text}}
        recipe = recipe_of(name, changes, short=short, files=files, columns=columns, is_told=True)
    if not isinstance(recipe, ClassificationRecipe):
        raise UserError(f"{name}: expected texts with labels, got the task {recipe.task}; see clearhead train --help")
    return recipe


def parts_of(recipe: ClassificationRecipe, n: int) -> tuple[list[LabelledText], list[list[LabelledText]]]:
    """The training examples that are not blank, and n parts of them that have each label alike.

    Equal texts are in one part. A label with fewer texts than parts is in none: every model learns from these.
    """
    if n < 2:
        raise UserError(f"--folds: expected at least 2, got {n}")
    examples = [e for e in read_labelled(recipe.data.sources["train"], recipe.data) if not e.is_blank]
    if recipe.data.problem_type == "regression":
        if len({e.normalized for e in examples}) < n:
            raise UserError(f"expected at least {n} texts, got {len(examples)}; try fewer --folds")
        return examples, hold_out(examples, [1 / n] * (n - 1), by_label=False)
    counts = Counter(label for _, label in {(e.normalized, label) for e in examples for label in e.labels})
    rare = {label for label, count in counts.items() if count < n}
    parts = hold_out([e for e in examples if not rare & {*e.labels}], [1 / n] * (n - 1), by_label=True)
    places: dict[str, set[int]] = {}
    for k, part in enumerate(parts):
        for label in {label for example in part for label in example.labels}:
            places.setdefault(label, set()).add(k)
    # With several labels a text, all texts of a label may come into one part, whose model would not know it.
    rare |= {label for label, found in places.items() if len(found) < 2}
    if rare:
        tell(f"not judged, as they have too few texts for the folds: {', '.join(sorted(rare)[:12])}")
    judged = [[e for e in part if not rare & {*e.labels}] for part in parts]
    if len({label for part in judged for e in part for label in e.labels}) < 2:
        raise UserError(f"expected at least 2 labels with {n} texts each, got fewer; try fewer --folds")
    return examples, judged


def judged(
    recipe: ClassificationRecipe,
    examples: Sequence[LabelledText],
    parts: Sequence[Sequence[LabelledText]],
    folder: Path,
    models: int = 1,
) -> Suspects:
    """Trains models for each part on all other examples, saves them in the folder, and has them judge the part.

    The models of a part differ in their seeds, and what they say is averaged. Of labels a linear model of the words
    gives a second opinion.
    """
    problem = recipe.data.problem_type
    names = [str(recipe.data.label)] if problem == "regression" else names_of(examples)
    outputs, linear = list[np.ndarray](), list[np.ndarray]()
    for k, part in enumerate(parts):
        tell(f"fold {k + 1} of {len(parts)}: learning from the others to judge {len(part):,} texts")
        held = {id(example) for example in part}
        others, said = [e for e in examples if id(e) not in held], list[np.ndarray]()
        for i in range(models):
            training = recipe.training.model_copy(update={"seed": recipe.training.seed + i})
            model, found = trained(recipe.model_copy(update={"training": training}), others, part)
            model.save(folder / (f"fold-{k + 1}-{i + 1}" if i else f"fold-{k + 1}"))
            labels = head_of(model.config).labels
            said.append(found if problem == "regression" else found[:, [labels.index(name) for name in names]])
        outputs.append(np.mean(said, axis=0))
        if problem != "regression":
            linear.append(opinion(others, part, names))
    order = [example for part in parts for example in part]
    everything = np.concatenate(outputs)
    if linear:
        has = np.array([[name in example.labels for name in names] for example in order])
        several = problem == "multi_label_classification"
        everything = joined(everything, np.concatenate(linear), has, several=several)
    which = np.repeat(np.arange(len(parts)), [*map(len, parts)])
    return Suspects(order, names, which, everything, doubts(problem, order, names, everything))


def trained(
    recipe: ClassificationRecipe, train_on: Sequence[LabelledText], judge: Sequence[LabelledText]
) -> tuple[Model, np.ndarray]:
    """A model trained on some texts, and its predictions for others: n v, probabilities of labels or a number."""
    with tempfile.TemporaryDirectory() as scratch:
        is_several = recipe.data.problem_type == "multi_label_classification"
        files = {
            name: write(some, Path(scratch, f"{name}.jsonl"), is_several=is_several)
            for name, some in {"train": train_on, "valid": judge}.items()
        }
        pair = {"text_pair": "1"} if recipe.data.text_pair is not None else {}
        tables = recipe.model_dump(mode="json")
        kept = {name: value for name, value in tables["data"].items() if name not in ("test", "text_pair", "folder")}
        tables["data"] = kept | files | pair | {"label": "label"}
        tables["training"] |= {"evaluate_every": NEVER, "save_every": None, "patience": None}
        fold = validate(tables, where="fold")
        fold, network, prepared = begin(fold)
        run = Run(network, prepared.task, fold.training, None)
        with ProgressBar(unit=run.task.unit) as bar:
            for event in train(run):
                bar(event)
                if isinstance(event, Ended) and event.signal is not None:
                    raise Interrupted("stopped; the models of the folds that ended are in the folder", event.signal)
        task = run.task
        assert isinstance(task, Classification)
        logits = logits_of(run.model, task.valid.inputs, task.tokenizer)
        model = Model(settled(run.model).cpu(), task.tokenizer, fold.generation)
        return model, scores(head_of(model.config), logits).numpy()


def write(examples: Sequence[LabelledText], path: Path, *, is_several: bool) -> JsonObject:
    """Writes examples as JSON lines; returns the table of their source."""
    with path.open("w", encoding="utf-8") as file:
        for example in examples:
            # A list stands for any number of labels; one alone is read as it was written.
            label = example.labels[0] if not is_several else [*example.labels]
            row = {str(i): text for i, text in enumerate(example.texts)} | {"label": label}
            file.write(json.dumps(row) + "\n")
    return {"kind": "table", "path": str(path), "text": "0"}
