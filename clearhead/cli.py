"""The command line: what there is to say, and where it goes. Imports no torch until a command runs."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from clearhead.errors import UserError

app = App(
    name="clearhead",
    help="A Transformer you can see through: train it, use it, look inside.",
    help_format="plaintext",
    version_flags=["--version"],
)

Json = Annotated[bool, Parameter(negative="")]
Out = Annotated[Path | None, Parameter()]


@app.command
def demo(
    *,
    to: str = "fr",
    out: Out = None,
    browser: bool = True,
    json: Json = False,
    seed: int = 0,
    phrases: Annotated[tuple[str, ...], Parameter(name="--say", consume_multiple=True)] = (),
) -> None:
    """Train a translator in about two minutes, translate, and open what it attended to. Needs no network.

    Parameters
    ----------
    to: Language to translate into: any locale of CLDR, such as fr, de, es, ja, pt-BR.
    out: Folder for the model and the page (default: clearhead-demo-LOCALE).
    browser: Open the page in a browser when done.
    json: Print the figures as one JSON object on the last line.
    seed: Another seed, another network and other phrases.
    phrases: Your own phrases to translate at the end, instead of being asked.
    """
    from clearhead.demo import run_demo

    run_demo(to, out=out, browser=browser, as_json=json, seed=seed, phrases=phrases)


@app.command
def train(
    recipe: str,
    *changes: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    out: Out = None,
    source: Path | None = None,
    target: Path | None = None,
    text: Path | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    tensorboard: Json = False,
    json: Json = False,
) -> None:
    """Train from a recipe; any field of it can be changed on the line, such as --training.clip 0.5.

    Parameters
    ----------
    recipe: A recipe file (.toml) or the name of one: translation, lm, multi30k, shakespeare, ...
    out: New folder for the run (default: runs/NAME-1, -2, ...).
    source: Text file of source sentences, one a line (translation).
    target: Text file of their translations, line by line.
    text: Text file to learn to continue (lm).
    minutes: Wall time of training.
    steps: Number of updates.
    seed: Seed of everything random.
    device: auto, cpu, cuda or mps.
    precision: auto, fp32 or bf16.
    tensorboard: Also write TensorBoard logs.
    json: Print the final figures as one JSON object on the last line.
    """
    from clearhead.commands import train_command

    short = {
        "data.train.source": source,
        "data.train.target": target,
        "data.train.paths": None if text is None else f'["{text}"]',
        "training.minutes": minutes,
        "training.steps": steps,
        "training.seed": seed,
        "training.device": device,
        "training.precision": precision,
    }
    given = [(name, str(value)) for name, value in short.items() if value is not None]
    train_command(recipe, [*given, *pairs(changes)], out=out, tensorboard=tensorboard, as_json=json)


@app.command
def resume(run: Path, *, tensorboard: Json = False, json: Json = False) -> None:
    """Go on with an interrupted run, exactly where its newest good checkpoint was.

    Parameters
    ----------
    run: The run's folder.
    tensorboard: Also write TensorBoard logs.
    json: Print the final figures as one JSON object on the last line.
    """
    from clearhead.commands import resume_command

    resume_command(run, tensorboard=tensorboard, as_json=json)


@app.command
def translate(
    model: Path,
    *texts: str,
    beams: int = 5,
    length_penalty: float = 1.0,
    n_best: int = 1,
    page: Path | None = None,
    device: str = "cpu",
) -> None:
    """Translate texts given on the line, or standard input line by line.

    Parameters
    ----------
    model: Folder of a model or run.
    texts: Sentences to translate.
    beams: Width of the beam search; 1 is greedy.
    length_penalty: Exponent of the length by which scores are divided.
    n_best: Translations to print for each sentence.
    page: Write a page here that shows what each word attended to.
    device: cpu, cuda or mps.
    """
    from clearhead.commands import translate_command

    search = {"beams": beams, "length_penalty": length_penalty, "n_best": n_best, "temperature": 0.0}
    translate_command(model, list(texts), config=search, page=page, device=device)


@app.command
def generate(
    model: Path,
    prompt: str = "",
    *,
    max_new_tokens: int = 256,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    stop: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    seed: int = 0,
    device: str = "cpu",
) -> None:
    """Continue a prompt, token by token as it is written.

    Parameters
    ----------
    model: Folder of a model or run.
    prompt: What to continue; nothing starts from the beginning.
    max_new_tokens: Tokens written at most.
    temperature: Divides the logits; 0 takes the most likely token.
    top_k: Sample from the k most likely tokens.
    top_p: Sample from the fewest tokens that hold this share of the probability.
    min_p: Sample from tokens at least this fraction as likely as the likeliest.
    repetition_penalty: Above 1 makes tokens already there less likely.
    stop: Strings that end the text.
    seed: Seed of the sampling.
    device: cpu, cuda or mps.
    """
    from clearhead.commands import generate_command

    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    narrowing = {name: value for name, value in sampling.items() if value is not None}
    narrowing |= {"max_new_tokens": max_new_tokens, "repetition_penalty": repetition_penalty, "seed": seed}
    narrowing |= {"beams": 1, "n_best": 1}
    generate_command(model, prompt, narrowing, stop=stop, device=device)


@app.command
def evaluate(
    model: Path,
    *,
    source: Path | None = None,
    target: Path | None = None,
    text: Path | None = None,
    beams: int = 5,
    length_penalty: float = 1.0,
    moses: str | None = None,
    device: str = "cpu",
    json: Json = False,
) -> None:
    """Measure a model: on its recipe's test (or else validation) data, or on files given here.

    Parameters
    ----------
    model: Folder of a model or run.
    source: Text file of source sentences.
    target: Text file of their translations.
    text: Text file for a language model.
    beams: Width of the beam search.
    length_penalty: Exponent of the length by which scores are divided.
    moses: Language for Moses normalisation and tokenisation (such as de): also give lowercased BLEU on those tokens.
    device: cpu, cuda or mps.
    json: Print the figures as one JSON object on the last line.
    """
    from clearhead.commands import evaluate_command

    evaluate_command(
        model,
        source=source,
        target=target,
        text=text,
        config={"beams": beams, "length_penalty": length_penalty},
        moses=moses,
        device=device,
        as_json=json,
    )


@app.command
def summary(
    model: str,
    *,
    source_length: int | None = None,
    target_length: int | None = None,
    batch: int = 1,
    json: Json = False,
) -> None:
    """Parameters, shapes, FLOPs a token, activation and cache bytes of a preset or a model, by component.

    Parameters
    ----------
    model: A preset (transformer-base, bert-base, gpt2, ...) or the folder of a model.
    source_length: Length of the source, or of the only input.
    target_length: Length of the target.
    batch: Sequences at once.
    json: Print one JSON object on the last line.
    """
    from clearhead.commands import summary_command

    summary_command(model, source_length=source_length, target_length=target_length, batch=batch, as_json=json)


def pairs(changes: tuple[str, ...]) -> list[tuple[str, str]]:
    """`--training.clip 0.5` or `--training.clip=0.5` as (name, value)."""
    result: list[tuple[str, str]] = []
    rest = list(changes)
    while rest:
        name = rest.pop(0)
        if not name.startswith("--"):
            raise UserError(f"{name}: expected a field such as --training.clip, got a value; write --FIELD VALUE")
        name, equals, value = name[2:].partition("=")
        if not equals:
            if not rest:
                raise UserError(f"--{name}: expected a value after it, got nothing; write --{name} VALUE")
            value = rest.pop(0)
        result.append((name.replace("-", "_"), value))
    return result


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user's mistake is one line on stderr and the right exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in words
    try:
        app([word for word in words if word != "--debug"], exit_on_error=True)
    except UserError as error:
        if debug:
            raise
        sys.exit(_told(str(error), error.exit_code))
    except KeyboardInterrupt:
        sys.exit(_told("stopped by Ctrl-C; nothing was being saved", 130))
    except BrokenPipeError:
        sys.exit(141)
    except (MemoryError, RuntimeError) as error:
        if debug or not (isinstance(error, MemoryError) or "not enough memory" in str(error)):
            raise
        sys.exit(_told("out of memory; try a lower training.max_tokens or a smaller model", 3))


def _told(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code
