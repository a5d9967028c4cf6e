"""`clearhead translate` and `generate`."""

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clearhead.api import Model, load, predicting
from clearhead.cli.look.steer import steered
from clearhead.cli.options import tell
from clearhead.data.files import opened, read_lines, read_text
from clearhead.errors import UserError
from clearhead.generation.settings import searching
from clearhead.json_text import tabbed
from clearhead.machine.device import keep_freed_memory
from clearhead.recipe.generation import GenerationConfig
from clearhead.runs import task_of
from clearhead.text.languages import known_tags, language, languages, reading, tag_for

LINES = 512
"""Lines of a file that are read at once."""


def translate_command(
    name: str,
    texts: Sequence[str],
    *,
    to: str | None = None,
    source: str | None = None,
    file: Path | None,
    search: Mapping[str, Any],
    page: Path | None,
    int8: bool = False,
    int4: bool = False,
    device: str,
) -> None:
    """Translate the texts, a file or standard input line by line; n-best lines have their line's number and score.

    `to` is the language, for a model of several, and `source` that of the texts, if it names both.
    """
    given = lines_of(texts, file)
    if page is not None:
        check_page(page, rounds="int8" if int8 else "int4" if int4 else "")
    keep_freed_memory()
    model = load(name, int8=int8, int4=int4, device=device)
    if not model.is_encoder_decoder:
        predicting.task_of(model, verb="translate", name=name)
    config = searching(model.generation, search)
    tag, tokens = "", languages(model.tokenizer)
    if source is not None:
        model.reader = replace(
            model.reader, tokenizer=reading(model.tokenizer, language(source, tokens, "--from"), tokens)
        )
    if to is not None and tokens:
        first = model.tokenizer.library.token_to_id(language(to, tokens, "--to"))
        config = config.model_copy(update={"forced_first_id": first})
    elif to is not None:
        tag = tag_for(to, known_tags(model.tokenizer, task_of(name, model)[1]))
    shown: list[tuple[str, tuple[int, ...]]] = []
    number = 0
    for lines in given:
        number += len(lines)
        lines = [tag + line if line.strip() else line for line in lines]
        shown += translate_lines(model, lines, config, after=number - len(lines))
    if page is not None:
        write_page(model, name, shown, page)


def check_page(page: Path, *, rounds: str) -> None:
    """Raises UserError, before the work begins, if no page can be written."""
    from clearhead.explorer.static_files import check_built

    if rounds:
        raise UserError(f"--page: expected weights as they were stored, got --{rounds}; leave out one of the two")
    if not page.parent.is_dir():
        raise UserError(f"{page}: expected a file in a folder that is there, got no {page.parent}; make it first")
    check_built()


def write_page(model: Model, name: str, shown: Sequence[tuple[str, tuple[int, ...]]], page: Path) -> None:
    """Writes texts and their translations as the explorer's file, and prints where it is."""
    from clearhead.explorer.answering.requests import RunRequest
    from clearhead.explorer.export.translations import export_translations
    from clearhead.explorer.session import Session

    runs = [RunRequest(text=text, written=list(tokens)) for text, tokens in shown]
    n = export_translations(Session(model, name=name), runs, page)
    left_out = len({text for text, _ in shown}) - n
    tell(f"page: {page}" + (f" (the first {n} texts; {left_out} more do not fit)" if left_out else ""))


def translate_lines(
    model: Model, lines: Sequence[str], config: GenerationConfig, *, after: int
) -> list[tuple[str, tuple[int, ...]]]:
    """Print the translations of some lines; returns those that are not empty with the best one's tokens.

    Raises UserError for a line that is too long, after printing those before it.
    """
    encoder = model.config.encoder
    limit = encoder.max_length if encoder else None
    whole = [len(ids) for ids in replace(model.reader, max_length=None).ids(lines)]
    most = model.reader.max_length
    lengths = [n if most is None else min(n, most) for n in whole]
    long = next((i for i, n in enumerate(lengths) if limit is not None and n > limit), len(lines))
    known = [i for i in range(long) if lines[i].strip()]
    found = dict(zip(known, model.hypotheses([lines[i] for i in known], config), strict=True))
    for i in range(long):
        if unknown := model.tokenizer.unknown(lines[i]):
            tell(f"note: line {after + i + 1}: the model has never seen {', '.join(unknown)}")
        if whole[i] > lengths[i]:
            tell(
                f"note: line {after + i + 1}: read {most} of its {whole[i]} tokens, the most in training; try less text"
            )
        for hypothesis in found.get(i, [None]):
            text = "" if hypothesis is None else model.tokenizer.decode(hypothesis.tokens)
            score = "" if hypothesis is None else f"{hypothesis.score:.4f}"
            print(tabbed(text) if config.n_best == 1 else tabbed(str(after + i + 1), score, text))
    sys.stdout.flush()
    if long < len(lines):
        raise UserError(
            f"line {after + long + 1}: expected at most {limit} tokens, where this model's positions end, got"
            f" {lengths[long]}; cut it"
        )
    return [(lines[i], found[i][0].tokens) for i in known]


def lines_of(texts: Sequence[str], file: Path | None) -> Iterable[Sequence[str]]:
    """The texts, else the lines of the file, else those of standard input. Raises UserError if both are given."""
    if file is None:
        return [texts] if texts else arriving()
    if texts:
        raise UserError(f"--file {file}: expected it alone, got a text on the line too; leave out one of the two")
    check_file(file)
    lines = read_lines(file)
    return iter(lambda: [*itertools.islice(lines, LINES)], [])


def check_file(file: Path) -> None:
    """Raises UserError, before a model is loaded, if a file is missing or cannot be read."""
    with opened(file):
        pass


def arriving() -> Iterator[list[str]]:
    """The lines of standard input as they arrive: one if typed, many from a file."""
    if sys.stdin is None:  # closed: `<&-`
        return
    if sys.stdin.isatty():
        tell("Type a sentence and Enter; Ctrl-D ends.")
    rest, number = b"", 0
    while True:
        chunk = os.read(sys.stdin.fileno(), 1 << 16)  # Returns the available bytes, without waiting for more.
        whole, newline, rest = (rest + chunk).rpartition(b"\n") if chunk else (rest, b"", b"")
        lines: list[str] = []
        try:
            for raw in whole.split(b"\n") if whole or newline else []:
                lines.append(raw.removesuffix(b"\r").decode("utf-8-sig" if number == 0 else "utf-8"))
                number += 1
        except UnicodeDecodeError as error:
            bad = f"0x{error.object[error.start]:02X}"
            yield lines
            raise UserError(
                f"standard input:{number + 1}: expected UTF-8, got the byte {bad}; try `iconv -f LATIN1 -t UTF-8`"
            ) from None
        if lines:
            yield lines
        if not chunk:
            return


def load_draft(name: str | None, *, device: str) -> Model | str | None:
    """The draft of this name, in eight bits on a CPU: guesses are cheaper, and decide no probability of a text."""
    return name if name in (None, "lookup") else load(name, int8=device == "cpu", device=device)


def generate_command(
    name: str,
    prompt: str | None,
    *,
    file: Path | None,
    sampling: Mapping[str, Any],
    stop: Sequence[str],
    edit: tuple[Path | None, float] = (None, 1.0),
    draft: str | None = None,
    int8: bool = False,
    int4: bool = False,
    compiles: bool,
    device: str,
) -> None:
    """Print the prompt and its continuation as it is written.

    `edit` is the file of a direction, and its strength. `draft` names a model that guesses, or is "lookup".
    """
    if file is not None and prompt is not None:
        raise UserError(f"--file {file}: expected it alone, got a prompt on the line too; leave out one of the two")
    if edit[0] is not None and compiles:
        raise UserError("--compile: expected it without --edit, got both; leave out one of the two")
    if draft is not None and (compiles or edit[0] is not None):
        other = "--compile" if compiles else "--edit"
        raise UserError(f"--draft: expected it without {other}, got both; leave out one of the two")
    prompt = (prompt or "\n") if file is None else read_text(file).removesuffix("\n")
    keep_freed_memory()
    model = load(name, int8=int8, int4=int4, compile=compiles, device=device)
    if model.config.encoder is not None:
        predicting.task_of(model, verb="generate", name=name)
    given = {name: value for name, value in sampling.items() if value is not None}
    pieces = model.stream(prompt, stop=stop, draft=load_draft(draft, device=device), **given)
    if unknown := model.tokenizer.unknown(prompt):
        tell(f"note: the model has never seen {', '.join(unknown)}")
    if compiles:
        tell("note: before the second token a step is compiled, which takes from half a minute to minutes")
    print(prompt, end="", flush=True)
    try:
        with steered(model, *edit):
            for piece in pieces:
                print(piece, end="", flush=True)
    finally:
        print(flush=True)
