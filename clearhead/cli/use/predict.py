"""`clearhead predict` and its verbs: `classify`, `tag`, `answer`, `fill`, `summarize` and `embed`."""

from pathlib import Path
from typing import Any

from clearhead.cli.options import Flag, Named, Text
from clearhead.cli.use.inputs import DEFAULTS, Options
from clearhead.errors import UserError


def _run(model: str, texts: tuple[str, ...], options: Options, *, verb: str | None) -> None:
    from clearhead.cli.use.predictions import predict_inputs

    predict_inputs(model, texts, options, verb=verb)


def predict(model: Named, /, *texts: Text, options: Options = DEFAULTS) -> None:
    """Print a model's predictions for texts on the line, or for each line or row of a file or of standard input.

    The output is that of the task that the model was trained for: a translation, labels with their probabilities, ...
    Its own command, such as classify or translate, refuses a model of another task. Each input gives one line of
    output, a blank one a blank line. A tab separates two texts, if the model reads two.

    Args:
        texts: Texts; after -- they may begin with a hyphen.
        options: What the commands share.
    """
    _run(model, texts, options, verb=None)


def classify(
    model: Named,
    /,
    *texts: Text,
    labels: Text | None = None,
    template: Text | None = None,
    several: Flag = False,
    options: Options = DEFAULTS,
) -> None:
    """Print the label of each text or picture with its probability.

    With --labels the labels are yours, for a model that was not trained on them. A model of natural language inference
    says how far each text entails the template with the label in its place; a model of texts and pictures, such as
    CLIP, how well each picture fits it: `clearhead classify MODEL cat.png --labels "a cat,a dog"`.
    `clearhead classify MODEL --file texts.csv --text body --out labels.jsonl` reads a table.

    Args:
        texts: Texts or files of pictures; a tab is between two texts that have one label together. After -- they may
            begin with a hyphen.
        labels: Labels with commas between: "sport,politics".
        template: The sentence about a label, with {} for it (default: "This example is {}.", or of a picture "This is a
            photo of {}.").
        several: Judge each label alone, because several may hold.
        options: What the commands share.
    """
    from clearhead.api.predicting import ZeroShot
    from clearhead.cli.use.predictions import predict_inputs

    given: dict[str, Any] = {} if template is None else {"template": template}
    names = () if labels is None else tuple(label.strip() for label in labels.split(","))
    own = None if labels is None else ZeroShot(names, several=several, **given)
    if own is None and (template is not None or several):
        raise UserError("--labels: expected labels beside --template and --several, got none; add --labels 'a,b'")
    predict_inputs(model, texts, options, verb="classify", zero_shot=own)


def tag(model: Named, /, *texts: Text, options: Options = DEFAULTS) -> None:
    """Print the tagged words or names of each text.

    Args:
        texts: Texts; after -- they may begin with a hyphen.
        options: What the commands share.
    """
    _run(model, texts, options, verb="tag")


def answer(
    model: Named,
    /,
    *questions: Text,
    context: Text | None = None,
    context_file: Path | None = None,
    options: Options = DEFAULTS,
) -> None:
    """Print the answer to each question, which is a part of the context.

    Args:
        questions: Questions about the context; without one, each has its context after a tab.
        context: Text that holds the answers.
        context_file: File with that text.
        options: What the commands share.
    """
    from clearhead.cli.use.predictions import predict_inputs
    from clearhead.data.files import read_text

    if context is not None and context_file is not None:
        raise UserError(
            f"--context-file {context_file}: expected it alone, got --context too; leave out one of the two"
        )
    text = context if context_file is None else read_text(context_file)
    if text is not None and not questions:
        raise UserError('answer: expected a question, got none; try clearhead answer MODEL "Who?" --context TEXT')
    rows = questions if text is None else [(question, text) for question in questions]
    predict_inputs(model, rows, options, verb="answer")


def fill(model: Named, /, *texts: Text, options: Options = DEFAULTS) -> None:
    """Print the likeliest words for the mask in each text.

    Args:
        texts: Texts with the model's mask token, such as [MASK]; after -- they may begin with a hyphen.
        options: What the commands share.
    """
    _run(model, texts, options, verb="fill")


def summarize(model: Named, /, *texts: Text, options: Options = DEFAULTS) -> None:
    """Print an encoder-decoder's output for each text, such as a summary.

    Args:
        texts: Texts; after -- they may begin with a hyphen.
        options: What the commands share.
    """
    _run(model, texts, options, verb="summarize")


def embed(model: Named, /, *texts: Text, options: Options = DEFAULTS) -> None:
    """Print the vector of each text, or of each picture with a model of both, such as CLIP.

    Args:
        texts: Texts; after -- they may begin with a hyphen.
        options: What the commands share.
    """
    _run(model, texts, options, verb="embed")
