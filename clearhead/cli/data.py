"""`clearhead recipes`, `curve` and `tokenizer`."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from clearhead.cli.options import Flag, Text

tokenizer = App(name="tokenizer", help="Train a tokenizer, or show how one cuts a text.")


def recipes(*, schema: Flag = False) -> None:
    """List the recipes that `clearhead train` knows by name, each with a command that uses it.

    Args:
        schema: Print the JSON Schema of a recipe, with which editors complete and check a recipe file:
            `clearhead recipes --schema > recipe.schema.json`, and the file's first line is
            `#:schema recipe.schema.json` (Even Better TOML in VS Code, taplo elsewhere).
    """
    from clearhead.cli.train.known import recipes_command

    recipes_command(as_schema=schema)


def curve(runs: Annotated[tuple[Path, ...], Parameter(negative="")], /, *, out: Path = Path("curve.svg")) -> None:
    """Draw the learning curves of runs: the loss of each step, and the main scores. Also while they train.

    Needs pip install 'clearhead[plot]'.

    Args:
        runs: Folders of runs, such as runs/translation-1, which share a picture.
        out: The picture; its name says the format: .svg, .png, .pdf.
    """
    from clearhead.cli.train.curve import curve_command

    curve_command(runs, out=out)


@tokenizer.command(name="train")
def train_tokenizer(
    files: Annotated[tuple[Path, ...], Parameter(negative="")],
    /,
    *,
    out: Path,
    kind: Literal["bpe", "byte_bpe", "wordpiece", "unigram", "words", "characters"] = "bpe",
    vocab_size: int | None = None,
    lowercase: Flag = False,
) -> None:
    """Train a tokenizer on text files, and write it to a folder as tokenizer.json.

    It shows in seconds how a vocabulary cuts your text. `clearhead train` trains a tokenizer of its own, by the same
    settings: --tokenizer.kind, --tokenizer.vocab_size, --tokenizer.lowercase.

    Args:
        files: Text files, one text a line (UTF-8; .gz is fine).
        out: New folder for the tokenizer.
        kind: How to cut: byte-pair encoding of characters (bpe) or of bytes (byte_bpe, to which nothing is unknown),
            other pieces of words (wordpiece, unigram), whole words, or characters.
        vocab_size: Tokens at most (default: 8,000; words and characters 10,000).
        lowercase: Read capitals as small letters.
    """
    from clearhead.cli.train.tokenizer import train_tokenizer_command

    given = {"kind": kind, "vocab_size": vocab_size, "lowercase": lowercase}
    train_tokenizer_command(files, out=out, settings={name: x for name, x in given.items() if x is not None})


@tokenizer.command(name="show")
def show_tokenizer(name: str, /, *texts: Text) -> None:
    """Print a tokenizer's size and special tokens, and the tokens of texts with their ids.

    Args:
        name: Folder of a tokenizer, model or run, or the name of a model on the Hugging Face hub.
        texts: Texts to cut; after -- they may begin with a hyphen.
    """
    from clearhead.cli.train.tokenizer import show_tokenizer_command

    show_tokenizer_command(name, texts)
