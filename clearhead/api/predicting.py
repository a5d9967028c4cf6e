"""Predictions of a model by its task, and scores of labels."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import torch
from torch import Tensor

from clearhead.api.base import ModelBase
from clearhead.api.reader import Input
from clearhead.brief import brief, shorten
from clearhead.config.heads import ClassificationHead
from clearhead.errors import UserError, refuse
from clearhead.model.heads import scores
from clearhead.model.mode import Evaluating
from clearhead.tasks.classification.task import Classification, labelled, names_in, read_logits
from clearhead.tasks.registry import find, suitable
from clearhead.tasks.task import NOTHING, Pair, Prediction, RecipeTask, Trained, texts_of

Row: TypeAlias = str | Path | Sequence[str] | Mapping[str, str]
"""A text, or the path of a picture; or two texts, in order or by the names that the task gives them."""
T = TypeVar("T")
A = TypeVar("A")


def task_of(model: ModelBase, *, verb: str | None = None, name: str = "predict") -> type[RecipeTask[Any]]:
    """The task that a model was trained for, or for other models a task that they can do, if possible with `verb`.

    Raises UserError, which begins with `name`, if there is no such task, or if it has another verb.
    """
    if verb == "embed":  # Every network that reads texts has vectors of them.
        return find("embedding", where=name)
    if model.contract.task is None:
        task = suitable(model.config, where=name, verb=verb)
    else:
        task = find(model.contract.task, where=f"{name}:task")
    if verb not in (None, task.verb):
        raise UserError(f"{name}: expected a model to {verb}, got one to {task.verb}; try clearhead {task.verb} {name}")
    return task


def reads_pairs(model: ModelBase, task: type[RecipeTask[Any]]) -> bool | None:
    """True if every input is a pair of texts; None if it may be one or two."""
    return False if task.pair is None else model.contract.pairs


def lines_of(model: ModelBase, task: type[RecipeTask[Any]], rows: Sequence[Row], *, first: int = 1) -> list[str]:
    """The inputs as a task reads them, two texts as a `Pair`.

    Raises UserError, which names the number of the input beginning with `first`, for one of another kind.
    """
    pairs = reads_pairs(model, task)
    return [_line(task, row, pairs=pairs, where=f"input {i}") for i, row in enumerate(rows, first)]


def _line(task: type[RecipeTask[Any]], row: Row, *, pairs: bool | None, where: str) -> str:
    texts = _texts(task, row, where=where)
    if len(texts) == 1 and task.pair is not None and pairs is not False:
        texts = tuple(texts[0].split("\t", 1))
    if len(texts) == 2:
        if pairs is False:
            raise UserError(f"{where}: expected one text, which is what this model reads, got two; leave one out")
        return Pair(*texts)
    if pairs and texts[0].strip():
        raise UserError(f"{where}: expected {_names(task)} with a tab between them, got one text; add the other")
    return texts[0]


def _texts(task: type[RecipeTask[Any]], row: Row, *, where: str) -> tuple[str, ...]:
    """The texts of an input. Raises UserError for anything else."""
    if isinstance(row, str | Path):
        return (str(row),)
    if isinstance(row, Mapping):
        names = task.pair if task.pair is not None and task.pair[1] in row else (task.pair or ("text",))[:1]
        if {*row} != {*names}:
            raise UserError(f"{where}: expected the fields {_names(task)}, got {', '.join(map(str, row))}")
        row = [row[name] for name in names]
    if not isinstance(row, Sequence) or len(row) not in (1, 2) or not all(isinstance(text, str) for text in row):
        raise UserError(f"{where}: expected a text or a pair of texts, got {brief(row)}")
    return tuple(row)


def _names(task: type[RecipeTask[Any]]) -> str:
    return " and ".join(task.pair or ("text",))


def answered(rows: Sequence[T], ask: Callable[[list[T]], Iterable[A]], blank: A) -> Iterator[A]:
    """The answers to rows. Blank texts get the answer `blank`."""
    is_blank = [isinstance(row, str) and not row.strip() for row in rows]
    known = [row for row, skipped in zip(rows, is_blank, strict=True) if not skipped]
    answers = iter(ask(known) if known else ())
    return (blank if skipped else next(answers) for skipped in is_blank)


def predictions(model: ModelBase, task: type[RecipeTask[Any]], lines: Sequence[str]) -> Iterator[Prediction]:
    """Predicts each line, in order. A blank line has an empty prediction."""
    return answered(lines, lambda known: task.predict(cast("Trained", model), known), NOTHING)


def numbered(
    model: ModelBase, task: type[RecipeTask[Any]], rows: Sequence[Row], *, first: int = 1
) -> Iterator[Prediction]:
    """Predicts each input, in order.

    Raises UserError, which names the number of the input beginning with `first`, for one that it cannot answer.
    """
    lines, n = lines_of(model, task, rows, first=first), 0
    try:
        for prediction in predictions(model, task, lines):
            yield prediction
            n += 1
    except UserError:
        # A batch does not say which of its inputs is wrong.
        for i, line in enumerate(lines[n:], first + n):
            try:
                yield from predictions(model, task, [line])
            except UserError as error:
                raise UserError(f"input {i}: {error}") from None


TEMPLATE = "This example is {}."
"""The hypothesis about a label, as the pipeline of the reference library writes it."""
IMAGES = 32
"""Images of one batch."""

Rows = list[list[tuple[str, float]]]


def head_of(model: ModelBase) -> ClassificationHead:
    """The model's classification head. Raises UserError for any other."""
    head = model.config.head
    if not isinstance(head, ClassificationHead):
        raise refuse("classify", "a classification head", head.kind, "try load(…, head=…)")
    return head


def classified(model: ModelBase, inputs: Sequence[Input]) -> Rows:
    """The scores of the model's own labels for each text or image, none for a blank text. Long texts are cut."""
    head, pictures = head_of(model), model.reader.reads_images
    rows: Sequence[Any] = inputs if pictures else lines_of(model, Classification, [_text(x) for x in inputs])

    def ask(known: list[Any]) -> Rows:
        logits = (
            _of_images(model, known)
            if pictures
            else read_logits(cast("Trained", model), [texts_of(row) for row in known])
        )
        return [list(zip(names_in(head), row, strict=True)) for row in scores(head, logits).tolist()]

    return [*answered(rows, ask, [])]


@dataclass(frozen=True)
class ZeroShot:
    """Labels that a model was not trained for, and the hypothesis about each   (Yin et al. 2019)"""

    labels: Sequence[str]
    template: str | None = None
    """The sentence about a label, with {} in its place; by default that of the model's kind."""
    several: bool = False
    """True if each label is judged alone, because several may hold."""

    def sentences(self, usual: str) -> list[str]:
        """The template, or the usual one, with each label in its place."""
        return [(self.template or usual).replace("{}", label) for label in self.labels]

    def check(self, model: ModelBase) -> None:
        """Raises UserError for labels or a template that are wrong, and for a model of other relations."""
        self.check_labels()
        _relations(head_of(model))

    def check_labels(self) -> None:
        """Raises UserError for labels or a template that are wrong."""
        labels, is_list = self.labels, not isinstance(self.labels, str)
        if not labels or not is_list or not all(label.strip() for label in labels) or len({*labels}) < len(labels):
            got = brief([*labels] if is_list else labels)
            raise refuse("labels", "a list of different labels", got, "try ['sport', 'politics']")
        if self.template is not None and "{}" not in self.template:
            raise refuse("template", "{} in place of the label", repr(self.template), f"try {TEMPLATE!r}")


def entailed(model: ModelBase, texts: Sequence[Input], asked: ZeroShot) -> Rows:
    """The score of each label for each text, by a model of natural language inference; none for a blank text.

    Labels exclude each other: softmax over the labels of the logit of entailment. With `several`, or a single label:
    softmax over contradiction and entailment, for each label alone.
    """
    asked.check(model)
    entailment, contradiction = _relations(head_of(model))

    def ask(known: list[str]) -> Rows:
        pairs = [(text, hypothesis) for text in known for hypothesis in asked.sentences(TEMPLATE)]
        logits = read_logits(cast("Trained", model), pairs).view(len(known), len(asked.labels), head_of(model).n_labels)
        if asked.several or len(asked.labels) == 1:
            shares = logits[..., [contradiction, entailment]].softmax(-1)[..., 1]
        else:
            shares = logits[..., entailment].softmax(-1)
        return [list(zip(asked.labels, row, strict=True)) for row in shares.tolist()]

    return [*answered([_text(text) for text in texts], ask, [])]


def entailments(model: ModelBase, texts: Sequence[str], asked: ZeroShot) -> Iterator[Prediction]:
    """The labels that each text entails, as predictions; empty for a blank text."""
    for row in entailed(model, texts, asked):
        yield labelled(dict(row), several=asked.several) if row else NOTHING


def _relations(head: ClassificationHead) -> tuple[int, int]:
    """The indices of entailment and contradiction among the labels. A neutral label is optional."""
    names = [name.lower() for name in names_in(head)]
    entailment = next((i for i, name in enumerate(names) if name.startswith("entail")), None)
    if entailment is None or len(names) < 2:
        remedy = "try a model of natural language inference, or leave them out"
        raise refuse("labels", "a model with a label entailment", f"one with {shorten(names_in(head))}", remedy)
    opposite = next((i for i, name in enumerate(names) if name.startswith(("contra", "not_entail"))), None)
    return entailment, opposite if opposite is not None else (len(names) - 1 if entailment == 0 else 0)


def _of_images(model: ModelBase, images: Sequence[Input]) -> Tensor:
    """n v: the logits of images."""
    logits = [torch.empty(0, head_of(model).n_labels)]
    with Evaluating(model.network), torch.inference_mode():
        for at in range(0, len(images), IMAGES):
            batch = model.here(model.reader.batch(images[at : at + IMAGES], pad_id=None))
            logits.append(model.network(batch).float().cpu())
    return torch.cat(logits)


def _text(text: Input) -> str:
    if not isinstance(text, str):
        raise UserError(f"text: expected a string, got {type(text).__name__}")
    return text
