"""Training from Python: `train`, the `Run` that it returns, and `compare`."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self, TypeAlias

from clearhead.api import Model, load
from clearhead.data.tables import format_of
from clearhead.errors import UserError
from clearhead.explorer.answering.checkpoints import checkpoint_named
from clearhead.recipe import Recipe, read
from clearhead.runs import resume, with_absolute_paths
from clearhead.session.comparing import Comparison
from clearhead.session.decisions import show
from clearhead.session.frames import plain, splits_in, write_rows
from clearhead.session.measuring import Measuring
from clearhead.session.recipes import guess_of, plan, training_of
from clearhead.session.remarks import Ending
from clearhead.session.running import next_folder, record, written_by
from clearhead.session.view import html_of, viewer
from clearhead.tasks.evaluation import Evaluation
from clearhead.tasks.floors import Floor, Floors, read_floors
from clearhead.tasks.registry import find, validate
from clearhead.training.events import Ended, Event
from clearhead.training.ranks import ALONE
from clearhead.training.run import Run as TrainingRun
from clearhead.training.run_folder import DATA, RECIPE, begin_folder, recipe_in, require_new, require_run, undo

Files: TypeAlias = str | Path | Sequence[str | Path]


class Run:
    """A run in its folder: its best model, its scores, and its continuation.

    >>> run = clearhead.Run("runs/reviews-1")
    >>> run.model.predict(["What a film!"])
    """

    def __init__(self, folder: str | Path) -> None:
        """Raises UserError if no run has begun in the folder."""
        self.folder = Path(folder)
        require_run(self.folder)
        self.ended: Ended | None = None
        """How its last training in this process ended."""
        self.report: list[str] = []
        """What its last training in this process found in the data before the first step."""
        self.remarks: list[str] = []
        """What the end of its last training in this process says of the score, and what would raise it."""
        self.is_ours = False
        """True if nobody else needs its folder, should it fail to begin."""

    def __repr__(self) -> str:
        """The folder, and the scores if they are known."""
        scores: dict[str, float] = vars(self).get("scores", {})
        return f"Run({str(self.folder)!r}{''.join(f', {name}={value:.4g}' for name, value in scores.items())})"

    def _repr_html_(self) -> str:
        return html_of(self.folder, self.floors)

    @property
    def recipe(self) -> Recipe:
        """The recipe of the run."""
        return validate(recipe_in(self.folder / RECIPE), where=f"{self.folder}/{RECIPE}")

    @property
    def floors(self) -> Sequence[Floor]:
        """The scores of simple methods on the test data of the recipe, or else on its validation data."""
        return (read_floors(self.folder) or Floors()).on("test", "valid")

    @cached_property
    def model(self) -> Model:
        """The model of its best checkpoint."""
        return load(self.folder)

    @cached_property
    def scores(self) -> dict[str, float]:
        """The scores of the model on the test data of the recipe, or else on its validation data."""
        return {score.name: score.value for score in self.evaluate().scores}

    def evaluate(self, data: object = None, **options: Any) -> Evaluation:
        """The scores of the model on other data, with intervals, samples and mistakes.

        `data` are given as to `train`, with the columns of the training data; None measures on the recipe's own.
        Options are those of `clearhead evaluate`: `source`, `target`, `text`, and what the task has, such as `beams=1`.

        >>> run.evaluate([("I would watch it again.", "good")]).value("accuracy")
        """
        ((_, evaluation),) = _evaluations([(str(self.folder), self.model)], data, options)
        return evaluation

    def events(
        self, *, minutes: float | None = None, steps: int | None = None, epochs: float | None = None, **fields: object
    ) -> Iterator[Event]:
        """Trains from the newest checkpoint, or from the beginning, and yields every event.

        The limits count from the beginning of the run. A loop that is left ends the training, which `resume` continues.

        >>> for event in run.events(steps=300):
        ...     print(event)
        """
        with in_python():
            changes = training_of(_words(fields), {"minutes": minutes, "steps": steps, "epochs": epochs})
        return self._events(changes)

    def _events(self, changes: Mapping[str, object]) -> Iterator[Event]:
        with written_by(ALONE, self.folder):
            try:
                with in_python():
                    run, prepared = resume(self.folder, changes=changes)
            except Exception:
                undo(self.folder, is_ours=self.is_ours)
                raise
            self.report = prepared.data.lines()
            for event in record(run, prepared, self.folder):
                self.ended = event if isinstance(event, Ended) else None
                if self.ended is not None and self.ended.signal is None:
                    self.remarks = [*map(worded, _remarks(run, self.folder))]
                yield event
        for known in ("model", "scores"):
            vars(self).pop(known, None)

    def resume(self, *, view: bool = True, **options: Any) -> Self:
        """Trains further, with the options of `events`, and shows it as `train` does.

        >>> run.resume(minutes=10).scores
        """
        show = viewer(self) if view else None
        for event in self.events(**options):
            if show is not None:
                show(event)
        return self


def train(
    data: object,
    *,
    task: str | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    source: Files = (),
    target: Files = (),
    valid: object = None,
    test: object = None,
    skip_bad: bool = False,
    out: str | Path | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    patience: int | None = None,
    seed: int | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
    view: bool = True,
    **fields: Any,
) -> Run:
    """Trains a model on your data, and returns the run with its best model. The same as `clearhead train`.

    An interrupt, such as Ctrl-C or the notebook's stop, saves and returns the run too, and `run.resume()` continues it.

    >>> run = clearhead.train(frame, text="body", label="topic", minutes=2)
    >>> run.scores, run.model.predict(["What a film!"])

    >>> run = clearhead.train("translation", source="train.en", target="train.de")
    >>> run = clearhead.train(pairs, task="translation", source="en", target="de")

    Args:
        data: A frame of pandas or polars, a Dataset or DatasetDict, rows that are dictionaries or tuples (text, label),
            a dictionary of columns or of splits; or a path or the name of a recipe, as `clearhead train` takes it.
        task: The name or file of a recipe, for data that are not texts with labels.
        text: Column of the texts; for a recipe of texts, their file.
        text_pair: Column of the second text, where two texts have one label together.
        label: Column of the labels.
        source: Column of the sentences, or their files.
        target: Column of their translations, or their files.
        valid: Data like `data` for validation (default: part of the training data is held out).
        test: Data like `data`, on which `scores` are measured.
        skip_bad: Leave out rows that cannot be read, and list them; by default an error lists them.
        out: New folder for the run (default: runs/NAME-1, -2, ...).
        minutes: Time to train (default: the recipe's).
        steps: Updates to make at most.
        epochs: Passes over the training data at most.
        patience: Stop after this many evaluations in a row without a better score.
        seed: Seed of all random numbers.
        device: Where to compute; auto takes a GPU if there is one.
        precision: auto takes bf16 where it is faster and the losses agree.
        view: Show the training: a bar in a terminal, a picture in a notebook.
        fields: Any other field of the recipe: `model={"start": "folder"}`, `**{"training.clip": 0.5}`.
    """
    options = {name: value for name, value in locals().items() if name not in ("data", "view", "fields")}
    return start(data, is_told=view, **options, **fields).resume(view=view)


def start(data: object, *, out: str | Path | None = None, task: str | None = None, **options: Any) -> Run:
    """A run that is ready to train, for programs that follow its events. The options are those of `train`.

    >>> run = clearhead.start(frame, text="body", label="topic", minutes=2)
    >>> for event in run.events():
    ...     print(event)
    """
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError("train: expected one process, got torchrun's; train with the command clearhead train")
    is_ours = out is None or not Path(out).exists()
    name = task or (str(data) if isinstance(data, str | Path) else "table")
    folder = next_folder(Path("runs"), Path(name).stem) if out is None else Path(out)
    require_new(folder)
    try:
        begin_folder(folder, with_absolute_paths(_recipe(data, folder, task, **options)))
    except BaseException:
        undo(folder, is_ours=is_ours)
        raise
    run = Run(folder)
    run.is_ours = is_ours
    return run


def _remarks(run: TrainingRun, folder: Path) -> Iterator[str]:
    """What the end of a run says, by the scores on its validation data."""
    ending, value, task = Ending.of(run, folder), run.progress.best_score, run.task
    if ending is not None and value is not None:
        floors = (read_floors(folder) or Floors()).on("valid") if task.few is None else []
        yield from ending.remarks(floors, value, higher_is_better=task.higher_is_better)


LIMITS = ("minutes", "steps", "epochs", "patience", "seed", "device", "precision")


def _recipe(
    data: object,
    folder: Path,
    task: str | None,
    *,
    source: Files = (),
    target: Files = (),
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    valid: object = None,
    test: object = None,
    skip_bad: bool = False,
    is_told: bool = False,
    **fields: object,
) -> Recipe:
    """The recipe that the options of `train` ask for. Rows become files of JSON lines in the run's folder."""
    tables = {} if task is None else read(task)
    learns = find(tables.get("task"), where=task).files if task else None
    columns = _columns(tables.get("data")) or (learns.columns if learns else [])
    parts = splits_in(data) | {name: part for name, part in {"valid": valid, "test": test}.items() if part is not None}
    places = {name: _place(part, folder / DATA / f"{name}.jsonl", columns) for name, part in parts.items()}
    files: dict[str, Any] = {name: {"data": place} for name, place in places.items()}
    files["train"] = {"source": source, "target": target, "text": text}
    if learns and not isinstance(data, str | Path) and not (source or target or text):
        if not label and _is_for(task, places["train"]):
            task = learns = None
        elif "--data" not in learns.options:
            files["train"] |= {name: name for name in columns}
    if learns and source and [*learns.options] == ["--data"]:
        fields |= {"data.train.source": source, "data.train.target": target}
        files["train"] = dict[str, Any]()
    if learns:
        is_text = len(learns.options) == 1 and not format_of(places["train"])
        files["train"][next(iter(learns.options))[2:] if is_text else "data"] = places["train"]
    short = {name: fields.pop(name, None) for name in LIMITS}
    named = {"label": label, "text_pair": text_pair}
    with in_python():
        words = _words(fields | ({"data.skip_bad": True} if skip_bad else {}))
        made = plan(task or places["train"], words, short=short, files=files, columns=named)
    if is_told:
        show([replace(one, option=worded(one.option)) for one in made.decisions])
    return made.recipe


def _is_for(task: str | None, place: str) -> bool:
    """Returns True if the columns of a table show that it is for this task."""
    try:
        return guess_of(place, {"train": {}}, {}, {}).recipe == task
    except UserError:
        return False


def _place(data: object, path: Path, columns: Sequence[str]) -> str:
    """The place of data: their own, or a new file with their rows."""
    return str(data if isinstance(data, str | Path) else write_rows(data, path, names=columns))


def compare(first: Run | Model | str, second: Run | Model | str, data: object = None, **options: Any) -> Comparison:
    """Compares two runs or models on the same data: each score, and the paired difference with its interval.

    `data` and the options are those of `Run.evaluate`. A model may also be named by its folder or on the hub.

    >>> print(clearhead.compare(run, "runs/reviews-1"))
    """
    named: list[tuple[str, Model]] = []
    for which, given in (("first", first), ("second", second)):
        if isinstance(given, Model):
            named.append((which, given))
        else:
            name = str(given.folder if isinstance(given, Run) else given)
            named.append((name, given.model if isinstance(given, Run) else load(checkpoint_named(name))))
    names, both = zip(*((name, evaluation) for name, evaluation in _evaluations(named, data, options)), strict=True)
    return Comparison.of(*names, *both)


def _evaluations(
    models: Sequence[tuple[str, Model]], data: object, options: Mapping[str, Any]
) -> Iterator[tuple[str, Evaluation]]:
    """Each model's name, with its scores on the same data; None stands for the data of its recipe."""
    files = {name: options.get(name) for name in ("source", "target", "text")}
    others = {name: value for name, value in options.items() if name not in files}
    with TemporaryDirectory() as folder:
        columns = _columns((models[0][1].recipe or {}).get("data"))
        files["data"] = None if data is None else _place(data, Path(folder) / "data.jsonl", columns)
        for name, model in models:
            with in_python():
                measuring = Measuring.of(model, files, others, name=name)
            yield name, measuring.evaluation(model)


def _columns(data: Any) -> list[str]:
    """The columns that a recipe's table of data names, in the order of a row without names."""
    table = data or {}
    named = [table.get("train", {}).get(name) for name in ("text", "source", "target")]
    return [name for name in [*named, table.get("text_pair"), table.get("label")] if isinstance(name, str)]


def _words(fields: Mapping[str, object]) -> list[str]:
    """Fields of a recipe as the command line gives them."""
    return [f"--{name}={json.dumps(value, default=plain)}" for name, value in fields.items()]


@contextmanager
def in_python() -> Iterator[None]:
    """Errors about options of the command line name keywords instead: `--text NAME` is `text="NAME"`."""
    try:
        yield
    except UserError as error:
        if type(error) is not UserError:
            raise
        raise UserError(worded(str(error))) from None


def worded(text: str) -> str:
    """A text with keywords in place of the options of the command line."""
    text = re.sub(r"clearhead resume \S+ --(\w+) (\S+)", r"run.resume(\1=\2)", text)
    return re.sub(r"--([a-z][\w.-]*\w)(?: ([A-Z]+)\b)?", _keyword, text)


def _keyword(option: re.Match[str]) -> str:
    name = option[1].replace("-", "_").removesuffix("_data")
    if option[2] and "." in name:
        return f'**{{"{name}": "{option[2]}"}}'
    return f'{name}="{option[2]}"' if option[2] else name
