"""What each command does: the library's own calls, with something to read on the way."""

import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from clearhead import recipe as recipes
from clearhead.api import load, named_config
from clearhead.errors import Interrupted, UserError
from clearhead.model.summary import summarize
from clearhead.recipe_data import ParallelFiles, TextFiles
from clearhead.recipe_generation import GenerationConfig
from clearhead.runs import Keeper, Prepared, note_data_report, resume, score, start
from clearhead.tasks.metrics import Score
from clearhead.training.consumers import MetricsLog, ProgressBar, TensorBoardLog
from clearhead.training.train import Ended, Evaluated, Run, train


def train_command(
    recipe: str, changes: Sequence[tuple[str, str]], *, out: Path | None, tensorboard: bool, as_json: bool
) -> None:
    """Train from a recipe with changes, into a new folder."""
    tables = recipes.merge(recipes.read(recipe), recipes.nested(changes))
    checked = recipes.validate(tables, where=recipe)
    folder = out or next_folder(Path("runs"), Path(recipe).stem)
    print(f"{folder}: reading data", file=sys.stderr)
    run, prepared = start(checked, folder)
    drive(run, prepared, folder, tensorboard=tensorboard, as_json=as_json)


def resume_command(folder: Path, *, tensorboard: bool, as_json: bool) -> None:
    """Go on with a run."""
    run, prepared = resume(folder)
    drive(run, prepared, folder, tensorboard=tensorboard, as_json=as_json)


def drive(run: Run, prepared: Prepared, folder: Path, *, tensorboard: bool, as_json: bool) -> None:
    """Train, with a bar, logs and a tidy run folder; says at the end where the model is and what to do with it."""
    for line in prepared.report.lines() if prepared.report else []:
        print(line, file=sys.stderr)
    note_data_report(folder, prepared)
    consumers = [ProgressBar(), MetricsLog(folder), Keeper(run), *([TensorBoardLog(folder)] if tensorboard else [])]
    figures: dict[str, Any] = {}
    for event in train(run):
        for consume in consumers:
            consume(event)
        if isinstance(event, Evaluated) and event.is_best:
            figures = {s.name: s.value for s in event.evaluation.scores}
        if isinstance(event, Ended):
            if event.signal is not None:
                raise Interrupted(f"stopped; go on with: clearhead resume {folder}", event.signal)
            figures |= {"seconds": event.seconds, "steps": event.step, "best_step": run.progress.best_step}
    use = "translate" if run.network.encoder else "generate"
    print(f"model: {folder}   try: clearhead {use} {folder}", file=sys.stderr)
    if as_json:
        print(json.dumps(figures))


def translate_command(
    folder: Path, texts: list[str], *, config: Mapping[str, Any], page: Path | None, device: str
) -> None:
    """Translate the texts, or standard input line by line; n-best lines carry their scores."""
    model = load(folder, device=device)
    generation = changed(model.generation, config)
    lines = texts or [line.rstrip("\n") for line in sys.stdin]
    known = [i for i, line in enumerate(lines) if line.strip()]
    found = dict(zip(known, model.hypotheses([lines[i] for i in known], generation), strict=True))
    for i in range(len(lines)):
        for hypothesis in found.get(i, []):
            text = model.tokenizer.decode(hypothesis.tokens)
            print(text if generation.n_best == 1 else f"{hypothesis.score:.4f}\t{text}")
        if i not in found:
            print()
    if page is not None:
        from clearhead.explorer.pages import translation_page

        page.write_text(translation_page(model, [lines[i] for i in known], generation), encoding="utf-8")
        print(f"page: {page}", file=sys.stderr)


def generate_command(folder: Path, prompt: str, config: Mapping[str, Any], *, stop: Sequence[str], device: str) -> None:
    """Print the prompt and its continuation as it is written."""
    model = load(folder, device=device)
    generation = changed(model.generation.model_copy(update={"top_k": None, "top_p": None, "min_p": None}), config)
    print(prompt, end="", flush=True)
    for piece in model.stream(prompt, generation, stop=stop):
        print(piece, end="", flush=True)
    print()


def evaluate_command(
    folder: Path,
    *,
    source: Path | None,
    target: Path | None,
    text: Path | None,
    config: Mapping[str, Any],
    moses: str | None,
    device: str,
    as_json: bool,
) -> None:
    """Measure a model on files, or on its recipe's test (else validation) data."""
    if (source is None) != (target is None):
        raise UserError("evaluate: expected --source and --target together, got one of them")
    model = load(folder, device=device)
    given = None
    if source is not None and target is not None:
        given = ParallelFiles(source=source, target=target)
    elif text is not None:
        given = TextFiles(paths=(text,))
    scores, where = score(model, folder, given, changed(model.generation, config), moses=moses)
    print(f"{folder} on {where}:", file=sys.stderr)
    for one in scores:
        print(shown(one))
    if as_json:
        print(json.dumps({one.name: one.value for one in scores}))


def summary_command(
    name: str, *, batch: int, source_length: int | None, target_length: int | None, as_json: bool
) -> None:
    """Print a summary by component."""
    summary = summarize(named_config(name), batch=batch, source_length=source_length, target_length=target_length)
    print("\n".join(summary.lines()))
    if as_json:
        print(json.dumps(summary.to_json()))


def shown(one: Score) -> str:
    """A figure with its name and signature."""
    return f"{one.name:<18} {one.value:10.4f}  {one.signature}".rstrip()


def changed(config: GenerationConfig, changes: Mapping[str, Any]) -> GenerationConfig:
    """The settings with these changes; a contradiction is told in one line."""
    try:
        return GenerationConfig.model_validate(config.model_dump(exclude_defaults=True) | dict(changes))
    except ValidationError as error:
        raise UserError(recipes.explain(error, "generation")) from None


def next_folder(parent: Path, name: str) -> Path:
    """parent/name-1, or the first number that is free."""
    return next(folder for i in itertools.count(1) if not (folder := parent / f"{name}-{i}").exists())
