"""`clearhead predict` and its verbs: `classify`, `tag`, `answer`, `fill`, `summarize`, `embed` and `transcribe`."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from cyclopts import Parameter

from clearhead.cli.options import Device, Flag, Int4, Int8, Named, Text
from clearhead.errors import UserError

VERB = 5
"""Place among the commands."""


@Parameter(name="*")
@dataclass(frozen=True)
class Options:
    """What the commands share."""

    file: Path | None = None
    """File to read: lines of text (.gz is fine), or a table: .csv, .tsv, .jsonl, .parquet."""
    out: Path | None = None
    """File to write, once all is done: JSON lines if its name ends with .jsonl, else a line for each input."""
    text: str | None = None
    """Column of the text in a table (default: that of the training data, or text); its index without a header."""
    text_pair: str | None = None
    """Column of the second text, where the model reads two."""
    int8: Flag = False
    """Round the weights to eight bits: faster, and nearly the same (CPU only)."""
    int4: Flag = False
    """Round the weights to four bits: less accurate, and on a CPU quickest for one text at a time."""
    device: Device = "cpu"
    """Where to compute."""
    json: Flag = False
    """Print a JSON object for each input."""


def _run(model: str, texts: tuple[str, ...], options: Options, *, verb: str | None) -> None:
    from clearhead.cli.use.predictions import Given, predict_command

    predict_command(model, texts, Given(**asdict(options)), verb=verb)


def predict(model: Named, /, *texts: Text, options: Options = Options()) -> None:
    """Print what a model says of texts given on the line, or of each line or row of a file or of standard input.

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
    options: Options = Options(),
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
    from clearhead.cli.use.predictions import Given, ZeroShot, predict_command

    given: dict[str, Any] = {} if template is None else {"template": template}
    names = () if labels is None else tuple(label.strip() for label in labels.split(","))
    own = None if labels is None else ZeroShot(names, several=several, **given)
    if own is None and (template is not None or several):
        raise UserError("--labels: expected labels beside --template and --several, got none; add --labels 'a,b'")
    predict_command(model, texts, Given(**asdict(options)), verb="classify", zero_shot=own)


def tag(model: Named, /, *texts: Text, options: Options = Options()) -> None:
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
    options: Options = Options(),
) -> None:
    """Print the answer to each question, which is a part of the context.

    Args:
        questions: Questions about the context; without one, each has its context after a tab.
        context: Text that holds the answers.
        context_file: File with that text.
        options: What the commands share.
    """
    from clearhead.cli.use.predictions import Given, answer_command

    answer_command(model, questions, Given(**asdict(options)), context=context, context_file=context_file)


def fill(model: Named, /, *texts: Text, options: Options = Options()) -> None:
    """Print the likeliest words for the mask in each text.

    Args:
        texts: Texts with the model's mask token, such as [MASK]; after -- they may begin with a hyphen.
        options: What the commands share.
    """
    _run(model, texts, options, verb="fill")


def summarize(model: Named, /, *texts: Text, options: Options = Options()) -> None:
    """Print what an encoder-decoder writes for each text, such as a summary.

    Args:
        texts: Texts; after -- they may begin with a hyphen.
        options: What the commands share.
    """
    _run(model, texts, options, verb="summarize")


def embed(model: Named, /, *texts: Text, options: Options = Options()) -> None:
    """Print the vector of each text, or of each picture with a model of both, such as CLIP.

    Args:
        texts: Texts; after -- they may begin with a hyphen.
        options: What the commands share.
    """
    _run(model, texts, options, verb="embed")


def transcribe(
    model: Named,
    /,
    *files: Path,
    language: str | None = None,
    task: Literal["transcribe", "translate"] | None = None,
    beams: int | None = None,
    times: Flag = False,
    out: Path | None = None,
    int8: Int8 = False,
    int4: Int4 = False,
    device: Device = "cpu",
    json: Flag = False,
) -> None:
    """Print what each sound file says.

    A file of another sampling rate is resampled, and the mean of its channels is read. Long sounds are read in windows
    of the model's length, 30 seconds for most, one after another: a word on the border of two may be lost. With
    --times, each window begins where the last whole part of the one before ends.

    Args:
        files: WAV files.
        language: Language of the sounds, such as de or german (default: the model hears it in the first window).
        task: Write the language of the sound, or English (default: transcribe).
        beams: Width of the beam search; 1 is greedy (default: the model's own).
        times: Print each part of a text with its times in seconds: START, END, TEXT with tabs between.
        out: File to write, once all is done: JSON lines if its name ends with .jsonl, else a line for each file.
        json: Print a JSON object for each file.
    """
    from clearhead.cli.use.transcribe import transcribe_command

    transcribe_command(
        model,
        files,
        language=language,
        task=task,
        beams=beams,
        times=times,
        out=out,
        int8=int8,
        int4=int4,
        device=device,
        as_json=json,
    )
