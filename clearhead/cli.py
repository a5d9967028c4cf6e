"""The command line: what there is to say, and where it goes. Imports no torch until a command runs."""

import os
import sys
import time
import traceback
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from clearhead.commands.failures import explained

app = App(
    name="clearhead",
    help="A Transformer you can see through: train it, use it, look inside.",
    help_epilogue=(
        "Begin with `clearhead demo`. `clearhead COMMAND --help` explains one command. Results go to standard output,"
        " everything else to standard error; with --debug an error shows where in the code it arose.\n\n"
        "Exit codes: 0 done, 2 a mistake of yours, 3 out of memory, 4 training met NaN or infinity, 130 or 143 stopped"
        " by Ctrl-C or SIGTERM."
    ),
    help_format="markdown",
    version_flags=["--version"],
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Repeated = Annotated[tuple[str, ...], Parameter(negative="", show_default=False, consume_multiple=True)]
Device = Literal["auto", "cpu", "cuda", "mps"]


@app.command(sort_key=1, help_epilogue="")
def demo(
    *,
    to: str = "fr",
    say: Repeated = (),
    out: Path | None = None,
    browser: bool | None = None,
    json: Flag = False,
    seed: int = 0,
) -> None:
    """Train a translator in about two minutes and see what it attends to.

    It composes 20,000 English phrases (dates, countries, amounts, units, lists, ...) with their translations from CLDR,
    trains an encoder-decoder on them from nothing, tests it on 500 others, takes your own, and opens a page that shows
    for each word of a translation which words it was read from. Needs no network.

    Args:
        to: Language to translate into: any locale of CLDR, such as fr, de, es, ja, pt-BR.
        say: Your own phrases to translate at the end, instead of being asked.
        out: Folder for the model, its figures and the page (default: clearhead-demo-LOCALE).
        browser: Open the page in a browser when done (default: unless --json).
        json: Print the figures on standard output, as one JSON object: seconds, exact_match (0 to 1), bleu (0 to 100),
            alignment (0 to 1: content words whose attention is on the right word), and more.
        seed: Another number, another network and other phrases.
    """
    began = time.perf_counter()
    from clearhead.demo import run_demo

    opens = not json if browser is None else browser
    run_demo(to, out=out, browser=opens, as_json=json, seed=seed, phrases=say, began=began)


@app.command(sort_key=2, help_epilogue="")
def train(
    recipe: str,
    /,
    *changes: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    source: Path | None = None,
    target: Path | None = None,
    text: Path | None = None,
    out: Path | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    device: Device | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
    tensorboard: Flag = False,
    json: Flag = False,
) -> None:
    """Train from a recipe, such as your own translator or language model.

    - `clearhead train translation --source a.en --target a.de` learns to translate from two text files in which line n
      of one translates line n of the other.
    - `clearhead train lm --text book.txt` learns to go on with a text.

    Any field of a recipe can be changed on the line: --training.clip 0.5, --model.preset transformer-base,
    --tokenizer.kind unigram; a name that is wrong is answered with those that are right. Ctrl-C saves and stops, and
    `clearhead resume` goes on.

    Args:
        changes: Fields of the recipe, as above.
        recipe: translation, lm, multi30k, shakespeare, or a recipe file of your own (.toml).
        source: Text file of sentences, one a line (UTF-8; .gz is fine).
        target: Text file of their translations, line by line.
        text: Text file to learn to go on with.
        out: New folder for the run (default: runs/RECIPE-1, -2, ...).
        minutes: Time to train (default: the recipe's).
        steps: Updates to make at most (default: the recipe's).
        seed: Seed of everything random.
        device: Where to compute; auto takes a GPU if there is one.
        precision: auto takes bf16 where it is faster and the losses agree.
        tensorboard: Also write TensorBoard logs (pip install 'clearhead[log]').
        json: Print the best evaluation's figures on standard output, as one JSON object.
    """
    from clearhead.commands.train import train_command

    short = {"minutes": minutes, "steps": steps, "seed": seed, "device": device, "precision": precision}
    files = {"source": source, "target": target, "text": text}
    train_command(recipe, changes, short=short, files=files, out=out, tensorboard=tensorboard, as_json=json)


@app.command(sort_key=3, help_epilogue="")
def resume(run: Path, /, *, tensorboard: Flag = False, json: Flag = False) -> None:
    """Go on with a run that was stopped, exactly where its newest good checkpoint was.

    Args:
        run: The run's folder, such as runs/translation-1.
        tensorboard: Also write TensorBoard logs.
        json: Print the best evaluation's figures on standard output, as one JSON object.
    """
    from clearhead.commands.train import resume_command

    resume_command(run, tensorboard=tensorboard, as_json=json)


@app.command(sort_key=4, help_epilogue="")
def translate(
    model: str,
    /,
    *texts: str,
    n_best: int = 1,
    beams: int | None = None,
    length_penalty: float | None = None,
    page: Path | None = None,
    device: Device = "cpu",
) -> None:
    """Translate texts given on the line, or standard input line by line.

    Each line of input gives one of output, an empty one an empty one. Words that the model has no tokens for are named
    on standard error. `clearhead translate MODEL < a.en > a.de` translates a file.

    Args:
        model: Folder of a model or run, or the name of a model on the Hugging Face hub.
        texts: Sentences to translate; after -- they may begin with a hyphen.
        n_best: Translations of each line; above 1 as NUMBER-OF-LINE, SCORE, TRANSLATION with tabs between.
        beams: Width of the beam search; 1 is greedy (default: the model's own, or else 5).
        length_penalty: Exponent of the length by which scores are divided (default: the model's own, or else 1).
        page: Also write a page here that shows what each word attended to.
        device: Where to compute.
    """
    from clearhead.commands.use import translate_command

    search = {"beams": beams, "length_penalty": length_penalty, "n_best": n_best}
    translate_command(model, texts, search=search, page=page, device=device)


@app.command(sort_key=5, help_epilogue="")
def generate(
    model: str,
    prompt: str = "\n",
    /,
    *,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    stop: Repeated = (),
    seed: int = 0,
    device: Device = "cpu",
) -> None:
    """Go on with a text, piece by piece as it is written.

    What is not set here is as the model's recipe says, usually 256 tokens at temperature 0.8.

    Args:
        model: Folder of a model or run, or the name of a model on the Hugging Face hub.
        prompt: The text to go on with (default: an empty line).
        max_new_tokens: Tokens to write at most.
        temperature: Divides the logits: lower is safer, higher is wilder; 0 always takes the likeliest token.
        top_k: Draw from the k likeliest tokens only.
        top_p: Draw from the fewest tokens that hold this share of the probability, 0 to 1.
        min_p: Draw from tokens at least this fraction as likely as the likeliest, 0 to 1.
        repetition_penalty: Above 1 makes tokens that are there already less likely.
        stop: Strings before which the text ends.
        seed: The same seed writes the same text.
        device: Where to compute.
    """
    from clearhead.commands.use import generate_command

    sampling = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
    }
    generate_command(model, prompt, sampling=sampling, stop=stop, device=device)


@app.command(sort_key=6, help_epilogue="")
def evaluate(
    model: str,
    /,
    *,
    source: Path | None = None,
    target: Path | None = None,
    text: Path | None = None,
    beams: int | None = None,
    length_penalty: float | None = None,
    moses: str | None = None,
    device: Device = "cpu",
    json: Flag = False,
) -> None:
    """Measure a model on its recipe's test data (validation data where there are none), or on files given here.

    A translator: BLEU and chrF (0 to 100, with sacreBLEU's signatures), exact match (0 to 1), perplexity. A language
    model: loss in nats a token, perplexity, bits per byte.

    Args:
        model: Folder of a model or run, or the name of a model on the Hugging Face hub.
        source: Text file of sentences, for a translator.
        target: Text file of their translations, line by line.
        text: Text file, for a language model.
        beams: Width of the beam search; 1 is greedy (default: the model's own, or else 5).
        length_penalty: Exponent of the length by which scores are divided (default: the model's own, or else 1).
        moses: Language of the translations, such as de: also give BLEU lowercased on Moses tokens, as papers on small
            corpora do (pip install 'clearhead[eval]').
        device: Where to compute.
        json: Print the figures on standard output as one JSON object, and nothing else there.
    """
    from clearhead.commands.measure import evaluate_command

    search = {"beams": beams, "length_penalty": length_penalty}
    evaluate_command(
        model, source=source, target=target, text=text, search=search, moses=moses, device=device, as_json=json
    )


@app.command(sort_key=7, help_epilogue="")
def summary(
    model: str,
    /,
    *,
    source_length: int | None = None,
    target_length: int | None = None,
    batch: int = 1,
    json: Flag = False,
) -> None:
    """Count a model by component: parameters, shapes, FLOPs a token, bytes of activations and cache.

    Args:
        model: Folder of a model or run, or an architecture by name: transformer-base, bert-base, gpt2, llama-tiny, ...
        source_length: Tokens of the source, or of the only input.
        target_length: Tokens of the target.
        batch: Sequences at once.
        json: Print one JSON object on standard output, and nothing else there.
    """
    from clearhead.commands.measure import summary_command

    summary_command(model, source_length=source_length, target_length=target_length, batch=batch, as_json=json)


@app.command(sort_key=8, help_epilogue="")
def check(model: str, /, *, revision: str | None = None, json: Flag = False) -> None:
    """Compare a checkpoint here with the same in the reference library, value by value.

    Says what each field of its config.json decided, and, where `transformers` is installed, the largest difference of
    the residual stream after every layer and of the logits, in float32 on one random input. Exit code 4 if they are
    not close.

    Args:
        model: Folder of a model or run, or the name of a model on the Hugging Face hub.
        revision: Branch, tag or commit on the hub.
        json: Print one JSON object on standard output, and nothing else there.
    """
    from clearhead.commands.check import check_command

    check_command(model, revision=revision, as_json=json)


@app.command(sort_key=9, help_epilogue="")
def export(
    model: str,
    /,
    *,
    to: Literal["hf", "ctranslate2", "onnx"],
    out: Path | None = None,
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    quantization: Literal["int8", "int8_float16", "int8_bfloat16", "int8_float32", "int16"] | None = None,
    shard_gb: float | None = None,
    revision: str | None = None,
) -> None:
    """Write a model in the form that another library opens.

    - hf: the folder that the Hugging Face libraries (transformers, tokenizers) open. Needs nothing besides clearhead.
    - ctranslate2: for CTranslate2, which translates and generates fast on CPUs, by its own converter.
    - onnx: one graph for onnxruntime and others, for batches of any size and length: token ids and mask, or pixels, in;
      logits out. It keeps no cache between calls.

    The last two need pip install 'clearhead[export]'; what they write is run once and compared with the model.

    Args:
        model: Folder of a model or run, or the name of a model on the Hugging Face hub.
        to: The form to write.
        out: New folder to write (default: the model's name and the form, such as opus-de-en-onnx).
        dtype: Type of the weights (default: as they are stored; float32 for onnx).
        quantization: For ctranslate2: weights of 8 or 16 bits instead.
        shard_gb: For hf: gigabytes of weights a file at most (default: 5).
        revision: Branch, tag or commit on the hub.
    """
    from clearhead.commands.export import Choice, export_command

    choice = Choice(dtype=dtype, quantization=quantization, shard_gb=shard_gb)
    export_command(model, to=to, out=out, choice=choice, revision=revision)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user's mistake is one line on stderr and the right exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    n_options = words.index("--") if "--" in words else len(words)
    debug = "--debug" in words[:n_options]
    words = [word for word in words[:n_options] if word != "--debug"] + words[n_options:]
    try:
        app(words, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        told = explained(error, next((word for word in words if word in app), ""))
        if told is None:
            raise
        if isinstance(error, OSError) and error.filename is None:
            # Nobody reads on, or nothing more can be written: what is still in the buffer must not raise again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        message, code = told
        if debug:
            traceback.print_exc()
        if message:
            print(message if code > 128 else f"error: {message}", file=sys.stderr)
        sys.exit(code)
