"""`clearhead compare` and `wrong-labels`."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from clearhead.cli.options import Device, DeviceName, Files, Flag, OneObject


def compare(
    first: str,
    second: str,
    /,
    *,
    source: Files = (),
    target: Files = (),
    text: str | None = None,
    data: str | None = None,
    device: Device = "cpu",
    json: OneObject = False,
) -> None:
    """Compare two models on the same examples: is one better, or is it chance?

    Each score has a 95% interval. The difference has one too, and a p-value, by paired bootstrap resampling of the
    examples. Then follow the examples where each model is most clearly better than the other.
    Without files, both are measured on the test data of their recipes (else on the validation data), which must be
    the same.

    Args:
        first: Folder of a model or run, RUN@STEP for one checkpoint, or the name of a model on the Hugging Face hub.
        second: Another one, of the same task.
        source: Text files of sentences, for translators; with --data, their column.
        target: Text files of their translations, file by file and line by line.
        text: Text file, for language models with one tokenizer.
        data: Table with the columns of the training data, or with those that the other options name.
    """
    from clearhead.cli.judge.compare import compare_command

    files = {"source": source, "target": target, "text": text, "data": data}
    compare_command(first, second, files=files, options={}, device=device, as_json=json)


def wrong_labels(
    table: str,
    /,
    *changes: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    text: str | None = None,
    label: str | None = None,
    text_pair: str | None = None,
    folds: int = 3,
    models: int = 1,
    out: Path | None = None,
    minutes: float | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    device: DeviceName | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
    json: Flag = False,
) -> None:
    """List the texts of a table whose labels are likely wrong, the likeliest first.

    Trains models for each part of the texts (fold) on all other parts, so that no model judges a text it has learnt
    from. Confident learning (cleanlab, pip install 'clearhead[eval]') then says which labels are wrong; numbers are
    listed where they are far from the model's. Each entry has the command that opens the text in the explorer, on the
    model that judged it.

    Args:
        table: A table of labelled texts, a run that learnt from one, or a recipe file (.toml).
        changes: Fields of the recipe, as for train: --model.start NAME fine-tunes a checkpoint in each fold.
        text: Column of the texts, where a table is given (default: guessed, as by train).
        label: Column of the labels.
        text_pair: Column of the second text, where two texts have one label together.
        folds: Parts of the texts. Models are trained for each of them on the others.
        models: Models of a fold, with other seeds. Their averaged probabilities find more than those of one.
        out: New folder for the list and the models (default: runs/NAME-wrong-labels-1, -2, ...).
        minutes: Time to train each model (default: the recipe's).
        epochs: Passes over the texts of each model at most (default: the recipe's).
        steps: Updates of each model at most.
        seed: Seed of all random numbers.
        device: Where to compute.
        precision: auto takes bf16 where it is faster and the losses agree.
        json: Print the whole list, a JSON object on each line.
    """
    from clearhead.cli.judge.wrong_labels import wrong_labels_command

    limits = {"minutes": minutes, "epochs": epochs, "steps": steps}
    wrong_labels_command(
        table,
        changes,
        short=limits | {"seed": seed, "device": device, "precision": precision},
        columns={"label": label, "text_pair": text_pair},
        text=text,
        folds=folds,
        models=models,
        out=out,
        as_json=json,
    )
