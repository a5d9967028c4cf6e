"""Predictions for texts, lines and rows, as `clearhead predict` and its verbs print them."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from clearhead.api import Model
from clearhead.api.predicting import Row, ZeroShot, entailments, numbered, reads_pairs, task_of
from clearhead.api.towers import holds_towers, load_towers
from clearhead.brief import amount
from clearhead.cli.options import open_model, progress_bar, tell
from clearhead.cli.use.inputs import Options, arriving, check_file, some_at_once, stream_to
from clearhead.data.containers import PICTURES
from clearhead.data.guessing import InputColumns, read_inputs
from clearhead.errors import UserError
from clearhead.tasks.task import NOTHING, Prediction, RecipeTask

Say: TypeAlias = Callable[..., Iterator[Prediction]]
"""(rows, *, first) -> the predictions for inputs that are numbered from `first`."""


def predict_inputs(
    name: str, texts: Sequence[Row], given: Options, *, verb: str | None = None, zero_shot: ZeroShot | None = None
) -> None:
    """Prints or writes the prediction for each text, or for each line or row of a file, or line of standard input."""
    check_file(given.file, texts)
    if given.file is None and (given.text is not None or given.text_pair is not None):
        raise UserError("--text: expected --file with a table, got none; give the text itself without --text")
    if given.out is not None and not given.out.parent.is_dir():
        raise UserError(
            f"{given.out}: expected a file in a folder that is there, got no {given.out.parent}; make it first"
        )
    columns = InputColumns(given.text, given.text_pair)
    if holds_towers(name):
        say, columns = of_towers(name, verb, given, zero_shot), InputColumns(given.text)
    else:
        model = open_model(name, int8=given.int8, int4=given.int4, device=given.device)
        if zero_shot is not None:
            say = of_labels(model, zero_shot)
        else:
            task = task_of(model, verb=verb, name=name)
            say, columns = partial(numbered, model, task), columns_of(model, task, given)
    run(say, inputs_of(texts, given, columns), given)


# --- what is said -------------------------------------------------------------------------------------------------


def of_labels(model: Model, asked: ZeroShot) -> Say:
    """The labels that each text entails, by a model of natural language inference."""
    asked.check(model)

    def say(rows: Sequence[Row], *, first: int) -> Iterator[Prediction]:
        for i, row in enumerate(rows, first):
            if not isinstance(row, str):
                raise UserError(f"input {i}: expected one text beside --labels, got two; leave out --text-pair")
        return entailments(model, [row for row in rows if isinstance(row, str)], asked)

    return say


def of_towers(name: str, verb: str | None, given: Options, asked: ZeroShot | None) -> Say:
    """The labels of each picture by a model of two towers, or the vector of each text or picture."""
    if given.int8 or given.int4:
        rounds = "int8" if given.int8 else "int4"
        raise UserError(f"--{rounds}: expected a model of one network, got {name}, of two; leave it out")
    if asked is None and verb not in (None, "embed"):
        raise UserError(f"{name}: expected --labels, because this model has none; try --labels 'a cat,a dog'")
    towers = load_towers(name, device=given.device)
    if asked is not None:
        asked.check_labels()
        towers.judges_alone(asked)

    def say(rows: Sequence[Row], **_: object) -> Iterator[Prediction]:
        inputs = [row for row in rows if isinstance(row, str)]
        if len(inputs) < len(rows):
            raise UserError("input: expected one picture or text, got two; leave out --text-pair")
        if asked is not None:
            yield from towers.predictions(inputs, asked)
            return
        for one in inputs:
            if not one.strip():
                yield NOTHING
                continue
            is_picture = Path(one).suffix.lower() in PICTURES and Path(one).is_file()
            vector: list[float] = towers.embed([Path(one) if is_picture else one])[0].tolist()
            yield Prediction(" ".join(f"{number:.6g}" for number in vector), {"vector": [*vector]})

    return say


# --- from inputs to results ---------------------------------------------------------------------------------------


def columns_of(model: Model, task: type[RecipeTask[Any]], given: Options) -> InputColumns:
    """Where the texts of the task's inputs are in a table."""
    pairs = reads_pairs(model, task)
    names = ("text",) if task.pair is None or pairs is False else task.pair
    data = model.recipe.get("data") if model.recipe else None
    return InputColumns(
        given.text, given.text_pair, names, needs_all=bool(pairs), trained=data if isinstance(data, dict) else {}
    )


def inputs_of(texts: Sequence[Row], given: Options, columns: InputColumns) -> Iterable[Sequence[Row]]:
    """The inputs, some at a time: those on the line, in the file, or arriving at standard input."""
    if given.file is None:
        return [texts] if texts else arriving()
    return some_at_once(read_inputs(given.file, columns))


def run(say: Say, inputs: Iterable[Sequence[Row]], given: Options, *, what: str = "predictions") -> None:
    """Writes the predictions for the inputs, in their order."""
    as_json = given.json or (given.out is not None and given.out.suffix in (".jsonl", ".ndjson"))
    n = 0
    shows = given.file is not None and (given.out is not None or not sys.stdout.isatty())
    with stream_to(given.out) as stream, progress_bar(shows=shows, unit=" inputs") as bar:
        for rows in inputs:
            for row, said in zip(rows, say(rows, first=n + 1), strict=True):
                line = json.dumps({"input": row, **said.values}, ensure_ascii=False) if as_json else said.line
                print(line, file=stream, flush=given.out is None)
                bar.update()
            n += len(rows)
    if given.out is not None:
        tell(f"{given.out}: {amount(n, what)}")
