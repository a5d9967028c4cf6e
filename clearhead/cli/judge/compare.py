"""`clearhead compare`."""

import json as json_lines
import sys

from clearhead.cli.options import Device, Files, OneObject


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

    Each score and the difference have a 95% interval. The p-value comes from paired bootstrap resamples of the
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
    from clearhead.cli.judge.scores import json_of, measured
    from clearhead.machine.device import keep_freed_memory
    from clearhead.session.comparing import Comparison

    files = {"source": source, "target": target, "text": text, "data": data}
    keep_freed_memory()
    both = [measured(name, files=files, options={}, device=device)[1] for name in (first, second)]
    comparison = Comparison.of(first, second, *both)
    print(comparison, file=sys.stderr if json else sys.stdout)
    if json:
        examples = {
            title: [vars(a) | {"other": vars(b)} for a, b in some] for title, some in comparison.examples.items()
        }
        scores = {name: json_of(row) for name, row in comparison.scores.items()}
        models = {"first": first, "second": second, "examples": comparison.n, "scores": scores}
        print(json_lines.dumps(models | examples))
