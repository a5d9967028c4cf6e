"""`clearhead tokenizer`."""

from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from clearhead.brief import amount
from clearhead.cli.options import Flag, Text, given, tell
from clearhead.errors import UserError, pasted

tokenizer = App(name="tokenizer", help="Train a tokenizer, or show how one cuts a text.")


@tokenizer.command
def train(
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
    from pydantic import TypeAdapter, ValidationError

    from clearhead.data.files import opened, read_lines
    from clearhead.recipe import explain
    from clearhead.recipe.data import TextFiles
    from clearhead.recipe.tokenizers import TokenizerConfig
    from clearhead.text.tokenizers import Tokenizer

    tokenizers: TypeAdapter[TokenizerConfig] = TypeAdapter(TokenizerConfig)
    settings = given(kind=kind, vocab_size=vocab_size, lowercase=lowercase)
    if out.exists():
        raise UserError(f"{out}: expected a new folder for the tokenizer, got one that is there; try another --out")
    try:
        config = tokenizers.validate_python(settings)
    except ValidationError as error:
        raise UserError(explain(error, "tokenizer", schema=tokenizers.json_schema())) from None
    paths = TextFiles(paths=tuple(files)).under(Path()).paths
    for path in paths:
        with opened(path):
            pass
    trained = Tokenizer.train(chain.from_iterable(map(read_lines, paths)), config)
    trained.save(out)
    print(f"{out}: {trained.vocab_size:,} tokens")
    tell(f'try it: clearhead tokenizer show {pasted(out)} "A sentence."')


@tokenizer.command
def show(name: str, /, *texts: Text) -> None:
    """Print a tokenizer's size and special tokens, and the tokens of texts with their ids.

    Args:
        name: Folder of a tokenizer, model or run, or the name of a model on the Hugging Face hub.
        texts: Texts to cut; after -- they may begin with a hyphen.
    """
    from clearhead.api import model_folder
    from clearhead.api.pretrained import gguf_tokenizer
    from clearhead.checkpoints.weights.gguf import gguf_in
    from clearhead.checkpoints.weights.hub import locate
    from clearhead.text.tokenizers import Tokenizer

    folder = locate(name)
    file = gguf_in(folder)
    found = gguf_tokenizer(file) if file else Tokenizer.find(folder)
    cuts = found or Tokenizer.load(model_folder(folder))
    special = ", ".join(f"{token} {cuts.library.token_to_id(token)}" for token in cuts.special_tokens.values())
    print(f"{cuts.vocab_size:,} tokens; special tokens: {special or 'none'}")
    for text in texts:
        ids = cuts.encode(text)
        named = (f"{token} {i}" for token, i in zip(cuts.tokens(ids), ids, strict=True))
        print(f"{amount(len(ids), 'tokens')}:", *named, sep="  ")
