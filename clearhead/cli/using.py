"""`clearhead translate`, `generate`, `explore`, `serve` and `evaluate`."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from clearhead.cli.options import Device, Files, Flag, Int4, Int8, Named, Repeated, Revision, Text, Tokenize


def translate(
    model: Named,
    /,
    *texts: Text,
    n_best: int = 1,
    beams: int | None = None,
    length_penalty: float | None = None,
    to: str | None = None,
    source: Annotated[str | None, Parameter(name="--from")] = None,
    file: Path | None = None,
    page: Path | None = None,
    int8: Int8 = False,
    int4: Int4 = False,
    device: Device = "cpu",
) -> None:
    """Translate texts given on the line, a file or standard input line by line.

    Each line of input gives one of output, an empty one an empty one. Words without tokens are reported on standard
    error. `clearhead translate MODEL --file a.en > a.de` translates a file.

    Args:
        texts: Sentences to translate; after -- they may begin with a hyphen.
        n_best: Translations of each line; above 1 as NUMBER-OF-LINE, SCORE, TRANSLATION with tabs between.
        beams: Width of the beam search; 1 is greedy (default: the model's own, or else 5).
        length_penalty: Exponent of the length by which scores are divided (default: the model's own, or else 1).
        to: Language to translate into, such as de, for a model of several.
        source: Language of the texts, for a model that names it by a token (default: the one in its files).
        file: Text file to translate line by line (UTF-8; .gz is fine).
        page: Also write the explorer on the translations as one HTML file; it opens at what each word attended to.
    """
    from clearhead.cli.use.translate import translate_command

    search = {"beams": beams, "length_penalty": length_penalty, "n_best": n_best}
    rounds = {"int8": int8, "int4": int4}
    translate_command(model, texts, to=to, source=source, file=file, search=search, page=page, device=device, **rounds)


def generate(
    model: Named,
    prompt: Text | None = None,
    /,
    *,
    file: Path | None = None,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    stop: Repeated = (),
    edit: Path | None = None,
    strength: float = 1.0,
    seed: int = 0,
    draft: str | None = None,
    int8: Int8 = False,
    int4: Int4 = False,
    compile: Flag = False,  # noqa: A002
    device: Device = "cpu",
) -> None:
    """Continue a text, printed as it is generated.

    Settings that are not given are those of the model's recipe, usually 256 tokens at temperature 0.8.

    Args:
        prompt: The text to continue (default: an empty line).
        file: File with the text to continue, in place of PROMPT.
        max_new_tokens: Tokens to write at most.
        temperature: Divides the logits: lower is safer, higher is wilder; 0 always takes the likeliest token.
        top_k: Draw from the k likeliest tokens only.
        top_p: Draw from the fewest tokens that hold this share of the probability, 0 to 1.
        min_p: Draw from tokens at least this fraction as likely as the likeliest, 0 to 1.
        repetition_penalty: Above 1, tokens that already occur become less likely.
        stop: Strings before which the text ends.
        edit: Direction of `clearhead steer make`, which is added while the text is written.
        strength: How much of it to add; below 0 the other way.
        seed: The same seed writes the same text.
        draft: Smaller model with the same vocabulary, or lookup for the text itself, that guesses the next tokens: the
            same text, written faster.
        compile: Generate with compiled steps, the first of which takes a minute; for GPUs, no gain on a CPU.
    """
    from clearhead.cli.use.translate import generate_command

    sampling = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
    }
    generate_command(
        model,
        prompt,
        file=file,
        sampling=sampling,
        stop=stop,
        edit=(edit, strength),
        draft=draft,
        int8=int8,
        int4=int4,
        compiles=compile,
        device=device,
    )


def explore(
    model: Named,
    text: Text | None = None,
    /,
    *,
    target: Text | None = None,
    data: Files = (),
    column: str | None = None,
    features: Repeated = (),
    compare: str | None = None,
    export: Path | None = None,
    live: Literal["int8", "int4"] | None = None,
    corrupt: Text | None = None,
    port: int | None = None,
    browser: bool = True,
    revision: Revision = None,
    device: Device = "cpu",
) -> None:
    """Look inside a model in a browser: every number, how it was computed, and what changes when you change it.

    Serves a page to this machine alone, prints its address and opens it; Ctrl-C ends it. The address contains a token,
    and whoever has it can use the model. From another machine, forward the port:
    `ssh -L 8000:127.0.0.1:8000 HOST` with --port 8000, and open the address there.

    With --export the page becomes one HTML file, which opens anywhere without a server or a network. The file contains
    the whole model if it is small, else its results for this text, also without each of its heads. With --live it
    contains a large model, too, in 8 or 4 bits, and computes every change in the page.

    Args:
        text: The first input; an image file if the model reads images (default: an example).
        target: Input of the decoder of an encoder-decoder (default: its own output).
        data: Files of texts, as for capture, in which the page looks for examples (default: the run's own data).
        column: Column of the texts in them.
        features: Folders of `clearhead features train`, SAELens or circuit-tracer (FOLDER:LAYER), to see and edit.
        compare: Another model of this architecture, or a checkpoint (RUN@STEP), to see how it differs.
        export: HTML file to write in place of serving.
        live: Put the model itself into the file, rounded to 8 or 4 bits.
        corrupt: Text of as many tokens; the file holds the circuit of the first text against it.
        port: Port of the page's server (default: a free one).
        browser: Open the page, where there is a display.
    """
    from clearhead.cli.look.explore import explore_command

    explore_command(
        model,
        text,
        target=target,
        features=features,
        compare=compare,
        export=export,
        live=live,
        corrupt=corrupt,
        port=port or 0,
        browser=browser,
        revision=revision,
        device=device,
        data=data,
        column=column,
    )


def serve(
    model: Named,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    slots: int = 32,
    queue: int = 256,
    max_length: int = 4096,
    prefix_cache: int = 512,
    edit: Repeated = (),
    draft: str | None = None,
    deterministic: Flag = False,
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    int8: Int8 = False,
    int4: Int4 = False,
    revision: Revision = None,
    device: Device = "cpu",
) -> None:
    """Serve a model over HTTP with the API of OpenAI's completions: many requests at once, streamed on request.

    A language model has /v1/completions, and /v1/chat/completions with a chat template; a translator has /translate; a
    model that embeds has /v1/embeddings; any other has /v1/predict.
    Prints the address and a request to try; Ctrl-C ends it. With --host 0.0.0.0 other machines can connect; they need
    the key in the environment variable CLEARHEAD_API_KEY. docs/serving.md has every field.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 for a free one.
        slots: Texts that are generated at once.
        queue: Prompts that wait at most; further requests are refused until there is room.
        max_length: Tokens of a prompt with its continuation at most; fewer where the model's positions end.
        prefix_cache: Megabytes for keys and values of earlier texts, so that a prompt that begins like one of them
            reads only the rest; 0 for none.
        edit: Directions of `clearhead steer make` that requests may name: FILE, named as the file is, or NAME=FILE.
        draft: Smaller model with the same vocabulary, or lookup for the text itself, that guesses the next tokens
            of a text that is alone: the same text, written faster.
        deterministic: Give every request the same answer to the bit, whoever else asks: each text is computed apart,
            which is slower where many ask.
        dtype: Type to compute in (default: that of the weights).
    """
    from clearhead.cli.use.serve import serve_command

    serve_command(
        model,
        host=host,
        port=port,
        slots=slots,
        queue=queue,
        max_length=max_length,
        prefix_cache=prefix_cache,
        edits=edit,
        draft=draft,
        deterministic=deterministic,
        dtype=dtype,
        int8=int8,
        int4=int4,
        revision=revision,
        device=device,
    )


def evaluate(
    model: Named,
    /,
    *,
    source: Files = (),
    target: Files = (),
    text: str | None = None,
    data: str | None = None,
    beams: int | None = None,
    length_penalty: float | None = None,
    tokenize: Tokenize | None = None,
    moses: str | None = None,
    to: str | None = None,
    page: Path | None = None,
    int8: Int8 = False,
    int4: Flag = False,
    device: Device = "cpu",
    json: Flag = False,
) -> None:
    """Measure a model on the test data of its recipe (else its validation data), or on files given here.

    A translator: BLEU and chrF (0 to 100, with sacreBLEU's signatures), exact match (0 to 1), perplexity. A language
    model: loss in nats a token, perplexity, bits per byte. A classifier: accuracy and F1 with 95% intervals, and its
    worst mistakes.

    Args:
        source: Text files of sentences, for a translator; with --data, their column.
        target: Text files of their translations, file by file and line by line.
        text: Text file, for a language model.
        data: Table with the columns of the training data, or with those that the other options name.
        beams: Width of the beam search; 1 is greedy (default: the model's own, or else 5).
        length_penalty: Exponent of the length by which scores are divided (default: the model's own, or else 1).
        tokenize: sacreBLEU's tokenizer for BLEU (default: the recipe's, or else auto, which goes by the script of the
            translations: zh for Chinese, char for other scripts without spaces, 13a for the rest).
        moses: Language of the translations, such as de: also give BLEU lowercased on Moses tokens, as papers on small
            corpora do (pip install 'clearhead[eval]').
        to: Language that the translations are in, such as de, for a model of several.
        page: HTML file for the worst mistakes, each with a link into the explorer.
        int4: Round the weights to four bits: smaller, and less accurate.
        json: Print the figures on standard output as one JSON object, and nothing else there.
    """
    from clearhead.cli.judge.evaluate import evaluate_command

    files = {"source": source, "target": target, "text": text, "data": data}
    options = {"beams": beams, "length_penalty": length_penalty, "tokenize": tokenize, "moses": moses, "to": to}
    evaluate_command(model, files=files, options=options, int8=int8, int4=int4, device=device, page=page, as_json=json)
