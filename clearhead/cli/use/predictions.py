"""`clearhead predict`, and the commands that are its verbs: classify, tag, answer, fill, summarize, embed."""

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from tqdm import tqdm

from clearhead.api import Model, load
from clearhead.api.predicting import Row, ZeroShot, entailments, numbered, reads_pairs, task_of
from clearhead.api.towers import holds_towers, load_towers
from clearhead.cli.options import tell
from clearhead.cli.use.towers import said_by_towers
from clearhead.cli.use.translate import LINES, arriving, check_file
from clearhead.data.files import read_text
from clearhead.data.inputs import InputColumns, read_inputs
from clearhead.errors import UserError, reason
from clearhead.machine.device import keep_freed_memory
from clearhead.storage.disk import temporary_file
from clearhead.tasks.task import Prediction, RecipeTask

Say: TypeAlias = Callable[[Sequence[Row], int], Iterator[Prediction]]
"""What is said of some inputs, of which the first has this number."""
QUIET_SECONDS = 3
"""Seconds after which a file's progress is shown."""


@dataclass(frozen=True)
class Given:
    """The options that all of these commands share."""

    file: Path | None = None
    out: Path | None = None
    text: str | None = None
    text_pair: str | None = None
    int8: bool = False
    int4: bool = False
    device: str = "cpu"
    json: bool = False


def predict_command(
    name: str, texts: Sequence[str], given: Given, *, verb: str | None = None, zero_shot: ZeroShot | None = None
) -> None:
    """Prints or writes the prediction for each text, or for each line or row of a file, or line of standard input."""
    check(texts, given)
    keep_freed_memory()
    if holds_towers(name):
        run(of_towers(name, verb, given, zero_shot), inputs_of(texts, given, InputColumns(given.text)), given)
        return
    model = load(name, int8=given.int8, int4=given.int4, device=given.device)
    if zero_shot is not None:
        run(of_labels(model, zero_shot), inputs_of(texts, given, InputColumns(given.text, given.text_pair)), given)
        return
    task = task_of(model, verb=verb, name=name)
    run(of_task(model, task), inputs_of(texts, given, columns_of(model, task, given)), given)


def answer_command(
    name: str, questions: Sequence[str], given: Given, *, context: str | None, context_file: Path | None
) -> None:
    """Prints or writes the answer to each question about a text."""
    if context is not None and context_file is not None:
        raise UserError(
            f"--context-file {context_file}: expected it alone, got --context too; leave out one of the two"
        )
    if context_file is not None:
        context = read_text(context_file)
    if context is None:
        predict_command(name, questions, given, verb="answer")
        return
    check(questions, given)
    if not questions:
        raise UserError('answer: expected a question, got none; try clearhead answer MODEL "Who?" --context TEXT')
    keep_freed_memory()
    model = load(name, int8=given.int8, int4=given.int4, device=given.device)
    task = task_of(model, verb="answer", name=name)
    run(of_task(model, task), [[(question, context) for question in questions]], given)


def check(texts: Sequence[str], given: Given) -> None:
    """Raises UserError, before a model is loaded, for files that cannot be read or written."""
    if given.file is not None:
        if texts:
            raise UserError(
                f"--file {given.file}: expected it alone, got a text on the line too; leave out one of the two"
            )
        check_file(given.file)
    elif given.text is not None or given.text_pair is not None:
        raise UserError("--text: expected --file with a table, got none; give the text itself without --text")
    if given.out is not None and not given.out.parent.is_dir():
        raise UserError(
            f"{given.out}: expected a file in a folder that is there, got no {given.out.parent}; make it first"
        )


# --- what is said -------------------------------------------------------------------------------------------------


def of_task(model: Model, task: type[RecipeTask[Any]]) -> Say:
    """The predictions of a model's own task."""
    return lambda rows, first: numbered(model, task, rows, first=first)


def of_labels(model: Model, asked: ZeroShot) -> Say:
    """The labels that each text entails, by a model of natural language inference."""
    asked.check(model)

    def say(rows: Sequence[Row], first: int) -> Iterator[Prediction]:
        for i, row in enumerate(rows, first):
            if not isinstance(row, str):
                raise UserError(f"input {i}: expected one text beside --labels, got two; leave out --text-pair")
        return entailments(model, [row for row in rows if isinstance(row, str)], asked)

    return say


def of_towers(name: str, verb: str | None, given: Given, asked: ZeroShot | None) -> Say:
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
    return lambda rows, _: said_by_towers(towers, rows, asked)


# --- from inputs to results ---------------------------------------------------------------------------------------


def columns_of(model: Model, task: type[RecipeTask[Any]], given: Given) -> InputColumns:
    """Where the texts of the task's inputs are in a table."""
    pairs = reads_pairs(model, task)
    names = ("text",) if task.pair is None or pairs is False else task.pair
    data = model.recipe.get("data") if model.recipe else None
    return InputColumns(
        given.text, given.text_pair, names, needs_all=bool(pairs), trained=data if isinstance(data, dict) else {}
    )


def inputs_of(texts: Sequence[str], given: Given, columns: InputColumns) -> Iterable[Sequence[Row]]:
    """The inputs, some at a time: those on the line, in the file, or arriving at standard input."""
    if given.file is None:
        return [texts] if texts else arriving()
    rows = read_inputs(given.file, columns)
    return iter(lambda: [*itertools.islice(rows, LINES)], [])


def run(say: Say, inputs: Iterable[Sequence[Row]], given: Given) -> None:
    """Writes the predictions for the inputs, in their order."""
    as_json = given.json or (given.out is not None and given.out.suffix in (".jsonl", ".ndjson"))
    n = 0
    with stream_to(given.out) as stream, progress(given) as bar:
        for rows in inputs:
            for row, said in zip(rows, say(rows, n + 1), strict=True):
                print(json_line(row, said) if as_json else said.line, file=stream, flush=given.out is None)
                bar.update()
            n += len(rows)
    if given.out is not None:
        tell(f"{given.out}: {n:,} predictions")


def json_line(row: Row, said: Prediction) -> str:
    """An input and the values of its prediction as one line."""
    return json.dumps({"input": row, **said.values}, ensure_ascii=False)


def progress(given: Given) -> "tqdm[Any]":
    """Shows on a terminal how many inputs of a file are done, if that takes long."""
    shows = given.file is not None and sys.stderr.isatty() and (given.out is not None or not sys.stdout.isatty())
    return tqdm(unit=" inputs", disable=not shows, delay=QUIET_SECONDS, leave=False, file=sys.stderr)


@contextmanager
def stream_to(out: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that has its name once it is complete. Raises UserError if it cannot be written."""
    if out is None:
        yield sys.stdout
        return
    temporary = temporary_file(out)
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
        os.replace(temporary, out)  # noqa: PTH105 - as in storage.disk
    except OSError as error:
        raise UserError(f"{out}: expected to write it, got {reason(error)}; try another folder") from None
    finally:
        temporary.unlink(missing_ok=True)
