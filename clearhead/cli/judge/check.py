"""`clearhead check`."""

import json as json_lines

from clearhead.cli.options import OneObject, Revision, tell
from clearhead.errors import NumericError


def check(model: str, /, *, revision: Revision = None, json: OneObject = False) -> None:
    """Check whether a model opens, and compare its values with those of the reference library.

    Says what each field of its config.json decided, and, where `transformers` is installed, the largest difference of
    the residual stream after every layer and of the logits, in float32 on one random input. Exit code 4 if they are
    not close.

    For a config without weights, and for one that does not open, prints a verdict: "opens", "opens but for a head" or
    "does not open", which mechanism is missing, the field that says so, and the nearest thing that works. Exit code 2
    unless it opens.

    Args:
        model: Folder of a model or run, the name of a model on the Hugging Face hub, or a config.json alone.
    """
    from clearhead.cli.judge.reference import compare, foreign_folder, lines, to_json
    from clearhead.cli.judge.verdict import judge, show

    if (judged := judge(model, revision)) is not None:
        show(judged, as_json=json)
        return
    with foreign_folder(model, revision) as folder:
        result = compare(folder)
    if json:
        print(json_lines.dumps(to_json(result)))
    else:
        print("\n".join(lines(result)))
    if result.reference is None:
        tell("note: nothing to compare with; try pip install transformers")
    elif result.wrong:
        raise NumericError(f"{model}: expected the {result.wrong[0].what} of the reference, got {result.wrong[0].why}")
    elif not result.close:
        worst = max(result.differences, key=lambda one: one.relative)
        raise NumericError(
            f"{model}: expected values close to the reference, got {worst.largest:.1e} at {worst.address}"
        )
