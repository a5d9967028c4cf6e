"""`clearhead tokenizer`."""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from clearhead.api import model_folder
from clearhead.api.pretrained import gguf_tokenizer
from clearhead.checkpoints.weights.gguf_file import gguf_in
from clearhead.checkpoints.weights.hub import locate
from clearhead.cli.options import tell
from clearhead.data.files import opened, read_lines
from clearhead.errors import UserError, pasted
from clearhead.recipe import explain
from clearhead.recipe.data import TextFiles
from clearhead.recipe.tokenizers import TokenizerConfig
from clearhead.text.tokenizers import Tokenizer

_config: TypeAdapter[TokenizerConfig] = TypeAdapter(TokenizerConfig)


def train_tokenizer_command(files: Sequence[Path], *, out: Path, settings: Mapping[str, object]) -> None:
    """Train a tokenizer on the lines of text files, and write it to a new folder."""
    if out.exists():
        raise UserError(f"{out}: expected a new folder for the tokenizer, got one that is there; try another --out")
    try:
        config = _config.validate_python(settings)
    except ValidationError as error:
        raise UserError(explain(error, "tokenizer", schema=_config.json_schema())) from None
    paths = TextFiles(paths=tuple(files)).under(Path()).paths
    for path in paths:
        with opened(path):
            pass
    made = Tokenizer.train(chain.from_iterable(map(read_lines, paths)), config)
    made.save(out)
    print(f"{out}: {made.vocab_size:,} tokens")
    tell(f'try it: clearhead tokenizer show {pasted(out)} "A sentence."')


def show_tokenizer_command(name: str, texts: Sequence[str]) -> None:
    """Print a tokenizer's size and special tokens, and the tokens of the texts."""
    folder = locate(name)
    file = gguf_in(folder)
    own = gguf_tokenizer(file) if file else Tokenizer.find(folder)
    found = own or Tokenizer.load(model_folder(folder))
    special = ", ".join(f"{token} {found.library.token_to_id(token)}" for token in found.special_tokens.values())
    print(f"{found.vocab_size:,} tokens; special tokens: {special or 'none'}")
    for text in texts:
        ids = found.encode(text)
        print(
            f"{len(ids)} tokens:", *(f"{token} {i}" for token, i in zip(found.tokens(ids), ids, strict=True)), sep="  "
        )
