"""`clearhead wrong-labels`."""

import json as json_lines
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from clearhead.brief import cut
from clearhead.cli.options import DeviceName, Flag, tell
from clearhead.errors import UserError

LIST, TOP = "wrong_labels.jsonl", 20
"""The file of the list, and how many of it are printed."""
WIDTH = 100
"""Characters of a text that are printed."""


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
    from clearhead.cli.judge.doubts import require_cleanlab
    from clearhead.cli.judge.suspects import classifier_of, judged, parts_of
    from clearhead.session.running import next_folder
    from clearhead.storage.disk import replace_file
    from clearhead.training.run_folder import require_new

    limits = {"minutes": minutes, "epochs": epochs, "steps": steps}
    require_cleanlab()  # Reports a missing package before anything takes long.
    if models < 1:
        raise UserError(f"--models: expected at least 1, got {models}")
    recipe = classifier_of(
        table,
        changes,
        short=limits | {"seed": seed, "device": device, "precision": precision},
        columns={"label": label, "text_pair": text_pair},
        text=text,
    )
    if out is not None:
        require_new(out)
    examples, parts = parts_of(recipe, folds)
    folder = out or next_folder(Path("runs"), f"{Path(table).stem}-wrong-labels")
    suspects = judged(recipe, examples, parts, folder, models)
    rows = [*suspects.rows(folder)]
    content = "".join(json_lines.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    replace_file(folder / LIST, content.encode("utf-8", "backslashreplace"))
    tell(suspects.doubts.agreement)
    tell(f"{len(rows):,} of {len(suspects.examples):,} labels are likely wrong, {folder / LIST}; the likeliest:")
    for row, doubt in list(zip(rows, suspects.doubts.found, strict=True))[: None if json else TOP]:
        words = cut(" ".join(" / ".join(suspects.examples[doubt.example].texts).split()), WIDTH)
        print(json_lines.dumps(row, ensure_ascii=False) if json else f"{row['row']}  {doubt.line}  {words}")
    if rows:
        tell(f"look inside the first: {rows[0]['explore']}")
