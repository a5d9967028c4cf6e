"""`clearhead translate` and `generate`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from clearhead.cli.options import Device, Files, Int4, Int8, Named, Repeated, Text, given, open_model, tell
from clearhead.cli.use.inputs import lines_of
from clearhead.errors import UserError

if TYPE_CHECKING:
    from clearhead.api import Model
    from clearhead.recipe.generation import GenerationConfig


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
    from dataclasses import replace

    from clearhead.api import predicting
    from clearhead.generation.settings import searching
    from clearhead.runs import task_of
    from clearhead.text.languages import known_tags, language, languages, reading, tag_for

    inputs = lines_of(texts, file)
    if page is not None:
        check_page(page, rounds="int8" if int8 else "int4" if int4 else "")
    translator = open_model(model, int8=int8, int4=int4, device=device)
    if not translator.is_encoder_decoder:
        predicting.task_of(translator, verb="translate", name=model)
    search = {"beams": beams, "length_penalty": length_penalty, "n_best": n_best}
    config = searching(translator.generation, search)
    tag, tokens = "", languages(translator.tokenizer)
    if source is not None:
        begins = reading(translator.tokenizer, language(source, tokens, "--from"), tokens)
        translator.reader = replace(translator.reader, tokenizer=begins)
    if to is not None and tokens:
        first = translator.tokenizer.library.token_to_id(language(to, tokens, "--to"))
        config = config.model_copy(update={"forced_first_id": first})
    elif to is not None:
        tag = tag_for(to, known_tags(translator.tokenizer, task_of(model, translator)[1]))
    written: list[tuple[str, tuple[int, ...]]] = []
    number = 0
    for lines in inputs:
        tagged = [tag + line if line.strip() else line for line in lines]
        written += translate_lines(translator, tagged, config, after=number)
        number += len(lines)
    if page is not None:
        write_page(translator, model, written, page)


def check_page(page: Path, *, rounds: str) -> None:
    """Raises UserError, before the work begins, if no page can be written."""
    from clearhead.explorer.static_files import check_built

    if rounds:
        raise UserError(f"--page: expected weights as they were stored, got --{rounds}; leave out one of the two")
    if not page.parent.is_dir():
        raise UserError(f"{page}: expected a file in a folder that is there, got no {page.parent}; make it first")
    check_built()


def write_page(model: "Model", name: str, shown: Sequence[tuple[str, tuple[int, ...]]], page: Path) -> None:
    """Writes texts and their translations as the explorer's file, and prints where it is."""
    from clearhead.explorer.answering.questions import RunRequest
    from clearhead.explorer.export.page import export_translations
    from clearhead.explorer.session import Session

    runs = [RunRequest(text=text, written=list(tokens)) for text, tokens in shown]
    n = export_translations(Session(model, name=name), runs, page)
    left_out = len({text for text, _ in shown}) - n
    tell(f"page: {page}" + (f" (the first {n} texts; {left_out} more do not fit)" if left_out else ""))


def translate_lines(
    model: "Model", lines: Sequence[str], config: "GenerationConfig", *, after: int
) -> list[tuple[str, tuple[int, ...]]]:
    """Print the translations of some lines; returns those that are not empty with the best one's tokens.

    Raises UserError for a line that is too long, after printing those before it.
    """
    from dataclasses import replace

    from clearhead.json_text import tabbed

    encoder = model.config.encoder
    limit = encoder.max_length if encoder else None
    whole = [len(ids) for ids in replace(model.reader, max_length=None).ids(lines)]
    most = model.reader.max_length
    lengths = [n if most is None else min(n, most) for n in whole]
    long = next((i for i, n in enumerate(lengths) if limit is not None and n > limit), len(lines))
    known = [i for i in range(long) if lines[i].strip()]
    hypotheses = dict(zip(known, model.hypotheses([lines[i] for i in known], config), strict=True))
    for i in range(long):
        if unknown := model.tokenizer.unknown(lines[i]):
            tell(f"note: line {after + i + 1}: the model has never seen {', '.join(unknown)}")
        if whole[i] > lengths[i]:
            tell(
                f"note: line {after + i + 1}: read {most} of its {whole[i]} tokens, the most in training; try less text"
            )
        for hypothesis in hypotheses.get(i, [None]):
            text = "" if hypothesis is None else model.tokenizer.decode(hypothesis.tokens)
            score = "" if hypothesis is None else f"{hypothesis.score:.4f}"
            print(tabbed(text) if config.n_best == 1 else tabbed(str(after + i + 1), score, text))
    sys.stdout.flush()
    if long < len(lines):
        raise UserError(
            f"line {after + long + 1}: expected at most {limit} tokens, where this model's positions end, got"
            f" {lengths[long]}; cut it"
        )
    return [(lines[i], hypotheses[i][0].tokens) for i in known]


def generate(
    model: Named,
    prompt: Text | None = None,
    /,
    *,
    file: Path | None = None,
    image: Files = (),
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
    device: Device = "cpu",
) -> None:
    """Continue a text, printed as it is generated.

    Settings that are not given are those of the model's recipe, usually 256 tokens at temperature 0.8.

    Args:
        prompt: The text to continue (default: an empty line).
        file: File with the text to continue, in place of PROMPT.
        image: Pictures within the text, each at its mark, such as <image>, or before the text (docs/images.md).
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
    """
    from clearhead.api import predicting
    from clearhead.cli.look.steering import steered
    from clearhead.data.files import read_text

    if file is not None and prompt is not None:
        raise UserError(f"--file {file}: expected it alone, got a prompt on the line too; leave out one of the two")
    if draft is not None and edit is not None:
        raise UserError("--draft: expected it without --edit, got both; leave out one of the two")
    text = (prompt or "\n") if file is None else read_text(file).removesuffix("\n")
    sampling = given(
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
    )
    writer = open_model(model, int8=int8, int4=int4, device=device)
    if writer.config.encoder is not None:
        predicting.task_of(writer, verb="generate", name=model)
    pieces = writer.stream(text, image=image or None, stop=stop, draft=load_draft(draft, device=device), **sampling)
    if unknown := writer.tokenizer.unknown(text):
        tell(f"note: the model has never seen {', '.join(unknown)}")
    print(text, end="", flush=True)
    try:
        with steered(writer, edit, strength):
            for piece in pieces:
                print(piece, end="", flush=True)
    finally:
        print(flush=True)


def load_draft(name: str | None, *, device: str) -> "Model | str | None":
    """The draft of this name, in eight bits on a CPU: guesses are cheaper, and decide no probability of a text."""
    from clearhead.api import load

    return name if name in (None, "lookup") else load(name, int8=device == "cpu", device=device)
