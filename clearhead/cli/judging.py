"""`clearhead compare`."""

from pathlib import Path

from clearhead.cli.app import Device, Files, Flag, app


@app.command(sort_key=7, help_epilogue="")
def compare(
    first: str,
    second: str,
    /,
    *,
    source: Files = (),
    target: Files = (),
    text: Path | None = None,
    data: Path | None = None,
    device: Device = "cpu",
    json: Flag = False,
) -> None:
    """Compare two models on the same examples: is one better, or is it chance?

    Each score has a 95% interval. The difference has one too, and a p-value, by paired bootstrap resampling of the
    examples. Then follow the examples where each model is most clearly better than the other.
    Without files, both are measured on the test data of their recipes (else on the validation data), which must be
    the same.

    Args:
        first: Folder of a model or run, or the name of a model on the Hugging Face hub.
        second: Another one, of the same task.
        source: Text files of sentences, for translators.
        target: Text files of their translations, file by file and line by line.
        text: Text file, for language models with one tokenizer.
        data: Table with the columns of the training data.
        device: Where to compute.
        json: Print one JSON object on standard output, and nothing else there.
    """
    from clearhead.commands.compare import compare_command

    files = {"source": source, "target": target, "text": text, "data": data}
    compare_command(first, second, files=files, options={}, device=device, as_json=json)
