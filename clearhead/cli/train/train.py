"""`clearhead train` and `resume`."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from clearhead.cli.options import DeviceName, Files, Flag, Repeated


def train(
    recipe: str,
    /,
    *changes: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    source: Files = (),
    target: Files = (),
    text: str | None = None,
    data: str | None = None,
    label: str | None = None,
    text_pair: str | None = None,
    valid_source: Files = (),
    valid_target: Files = (),
    valid_text: str | None = None,
    valid_data: Annotated[Path | None, Parameter(name=("--valid-data", "--valid"))] = None,
    test_data: Annotated[Path | None, Parameter(name=("--test-data", "--test"))] = None,
    out: Path | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    patience: int | None = None,
    seed: int | None = None,
    device: DeviceName | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
    explain: Flag = False,
    page: Path | None = None,
    skip_bad: Flag = False,
    sweep: Repeated = (),
    live: Flag = False,
    tensorboard: Flag = False,
    dry_run: Flag = False,
    json: Flag = False,
) -> None:
    """Train from data or a recipe, such as your own classifier, translator or language model.

    - `clearhead train reviews.csv` learns what the data are for: to label texts or pairs, to translate, to tag words,
      to answer questions, to name pictures. It first shows which column it takes for what, and why; --dry-run ends
      there. Options mend a wrong guess: --text body --label topic. Add --model.start NAME to fine-tune a checkpoint.
    - `clearhead train translation --source a.en --target a.de` learns to translate from two text files in which line n
      of one translates line n of the other.
    - `clearhead train translation --data pairs.csv --source en --target de` reads two columns of a table.
    - `clearhead train lm --text book.txt` learns to continue a text.

    Any field of a recipe can be changed on the line: --training.clip 0.5, --model.preset transformer-base,
    --tokenizer.kind unigram; for a wrong name the error suggests the right one. Ctrl-C saves and stops, and
    `clearhead resume` continues.

    Args:
        changes: Fields of the recipe, as above.
        recipe: Data to learn from, or a recipe by its name (`clearhead recipes` lists them) or file (.toml). Data are
            a table (CSV, TSV, JSON, parquet), words with their tags (CoNLL), running text (.txt), or a folder, such as
            one with a folder of pictures for each class.
        source: Text files of sentences, one a line (UTF-8; .gz and .zst are fine); * and ? in quotes stand for any
            characters. With --data, the column of the sentences.
        target: Text files of their translations, file by file and line by line. With --data, their column.
        text: Text file to learn from; for a table, or with --data, the column of the texts.
        data: Table to learn from (.csv, .tsv, .jsonl, .parquet); words with their tags (CoNLL) for tagging.
        label: Column of the labels in a table; several columns of 0 and 1 with commas between them.
        text_pair: Column of the second text in a table, where two texts have one label together.
        valid_source: The same for validation (default: part of the training data is held out).
        valid_target: Their translations.
        valid_text: Text file for validation.
        valid_data: File like that of --data, for validation.
        test_data: File like that of --data, on which the best model is measured at the end.
        out: New folder for the run (default: runs/RECIPE-1, -2, ...).
        minutes: Time to train (default: the recipe's).
        steps: Updates to make at most (default: the recipe's).
        epochs: Passes over the training data at most (default: the recipe's).
        patience: Stop after this many evaluations in a row without a better score; 0 never (default: the recipe's, or
            8 that are 300 updates or more).
        seed: Seed of all random numbers.
        device: Where to compute; auto takes a GPU if there is one.
        precision: auto takes bf16 where it is faster and the losses agree.
        explain: Print what was chosen to make the run fast, why, and the field that sets it.
        page: HTML file for the worst mistakes on the test data, each with a link into the explorer.
        skip_bad: Leave out rows of the data that cannot be read, and list them; else all of them are told at once.
        sweep: A field with values, such as training.optimizer.lr=1e-3,3e-3: one run for each value (for several fields,
            for each combination), and at the end one table of their scores.
        live: Also open a page in the browser that shows the run while it trains (`clearhead watch RUN` later).
        tensorboard: Also write TensorBoard logs (pip install 'clearhead[log]').
        dry_run: Only show what is decided about the data, and print the command line that says all of it; with --json,
            both as one JSON object.
        json: Print the best evaluation's figures on standard output, as one JSON object.
    """
    from clearhead.cli.train.session import Output, train_run
    from clearhead.cli.train.sweep import sweep_runs
    from clearhead.session.recipes import plan, print_plan, recipe_of

    limits = {"minutes": minutes, "steps": steps, "epochs": epochs, "patience": patience}
    files = {
        "train": {"source": source, "target": target, "text": text, "data": data},
        "valid": {"source": valid_source, "target": valid_target, "text": valid_text, "data": valid_data},
        "test": {"data": test_data},
    }
    short = limits | {"seed": seed, "device": device, "precision": precision}
    columns = {"label": label, "text_pair": text_pair}
    changes = ("--data.skip_bad", "true", *changes) if skip_bad else changes
    if dry_run:
        print_plan(plan(recipe, changes, short=short, files=files, columns=columns), as_json=json)
        return
    recipe_for = partial(recipe_of, recipe, short=short, files=files, columns=columns)
    name, output = Path(recipe).stem, Output(explain, page, live, tensorboard, as_json=json)
    if sweep:
        sweep_runs(sweep, recipe_for, changes, name, out, output)
    else:
        train_run(partial(recipe_for, changes), name, out, output)


def resume(
    run: Path,
    /,
    *changes: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    minutes: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    parallel: Literal["auto", "ddp", "fsdp"] | None = None,
    tensor_parallel: int | None = None,
    live: Flag = False,
    tensorboard: Flag = False,
    json: Flag = False,
) -> None:
    """Continue a run that was stopped, from its newest valid checkpoint, with exactly the same result.

    A run goes on beyond its limits with a later one, and with other settings of training: `clearhead resume
    runs/translation-1 --steps 4000 --training.optimizer.lr 1e-3`. The schedule of the learning rate is that of the new
    length. The run's folder records each change, so that the next `resume` needs no options.

    Args:
        run: The run's folder, such as runs/translation-1.
        changes: Fields of training, as for train.
        minutes: Time to train in all, with what is done already (default: the recipe's).
        steps: Updates to make at most in all.
        epochs: Passes over the training data at most in all.
        parallel: How the processes that torchrun starts divide the work from now on.
        tensor_parallel: How many of them share each block from now on.
        live: Also open a page in the browser that shows the run while it trains.
        tensorboard: Also write TensorBoard logs.
        json: Print the best evaluation's figures on standard output, as one JSON object.
    """
    from clearhead.cli.train.session import Output, resume_run
    from clearhead.session.recipes import training_of

    limits = {"minutes": minutes, "steps": steps, "epochs": epochs}
    short = limits | {"parallel": parallel, "tensor_parallel": tensor_parallel}
    output = Output(live=live, tensorboard=tensorboard, as_json=json)
    resume_run(run, lambda: training_of(changes, short), output)
