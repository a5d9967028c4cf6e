"""What a model says of inputs, by its task: `Model.predict`, and the commands and routes that share it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.tasks.registry import find, suitable
from clearhead.tasks.task import NOTHING, Pair, Prediction, RecipeTask

if TYPE_CHECKING:
    from clearhead.api.model import Model

Row: TypeAlias = str | Path | Sequence[str] | Mapping[str, str]
"""A text, or the path of a picture; or two texts, in order or by the names that the task gives them."""


def task_of(model: "Model", *, verb: str | None = None, name: str = "predict") -> type[RecipeTask[Any]]:
    """The task that a model was trained for. A model from elsewhere gets one that it can do, if possible with `verb`.

    Raises UserError, which begins with `name`, if there is none, or if it has another verb.
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


def reads_pairs(model: "Model", task: type[RecipeTask[Any]]) -> bool | None:
    """Whether every input is a pair of texts; None if it may be one or two."""
    return False if task.pair is None else model.contract.pairs


def lines_of(model: "Model", task: type[RecipeTask[Any]], rows: Sequence[Row], *, first: int = 1) -> list[str]:
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


def predictions(model: "Model", task: type[RecipeTask[Any]], lines: Sequence[str]) -> Iterator[Prediction]:
    """What the model says of each line, in order; nothing for a blank line."""
    known = [line for line in lines if line.strip()]
    said = iter(task.predict(model, known) if known else ())
    for line in lines:
        yield next(said) if line.strip() else NOTHING


def numbered(
    model: "Model", task: type[RecipeTask[Any]], rows: Sequence[Row], *, first: int = 1
) -> Iterator[Prediction]:
    """What the model says of each input, in order.

    Raises UserError, which names the number of the input beginning with `first`, for one that it cannot answer.
    """
    lines, n = lines_of(model, task, rows, first=first), 0
    try:
        for said in predictions(model, task, lines):
            yield said
            n += 1
    except UserError:
        # A batch does not say which of its inputs is wrong.
        for i, line in enumerate(lines[n:], first + n):
            try:
                yield from predictions(model, task, [line])
            except UserError as error:
                raise UserError(f"input {i}: {error}") from None
