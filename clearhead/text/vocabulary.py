"""The tokens of a vocabulary: special ones, ones added for a task, ones that begin a word. Imports no torch."""

from collections.abc import Sequence

import numpy as np
import tokenizers
from tokenizers import AddedToken, models

from clearhead.text.tokenizers import Tokenizer

MASK = "<mask>"


def special_ids(tokenizer: Tokenizer) -> set[int]:
    """The ids that are no part of a text, such as those of padding and of the ends of a text."""
    library = tokenizer.library
    added = {i for i, token in library.get_added_tokens_decoder().items() if token.special}
    named = {library.token_to_id(token) for token in tokenizer.special_tokens.values()}
    return {i for i in (*added, *named, tokenizer.unk_id) if i is not None}


def with_special(tokenizer: Tokenizer, tokens: Sequence[AddedToken], **settings: object) -> Tokenizer:
    """A tokenizer with more special tokens, at the end of its vocabulary, which a text may spell.

    `settings` go into tokenizer_config.json. Raises UserError for a tokenizer with a source and a target side.
    """
    library = tokenizers.Tokenizer.from_str(tokenizer.library.to_str())
    library.add_special_tokens([*tokens])
    return tokenizer.changed(library, split_special_tokens=False, **settings)


def with_mask(tokenizer: Tokenizer) -> Tokenizer:
    """A tokenizer with a mask token, and with the begin and end tokens around each text, as encoders are pretrained."""
    return with_mask_token(tokenizer.templated("{begin} $A {end}", "{begin} $A {end} $B:1 {end}:1"))


def with_mask_token(tokenizer: Tokenizer) -> Tokenizer:
    """A tokenizer with a mask token, to which the spaces around it belong."""
    a, b, both = tokenizer.encode_batch(["a", "b", "a b"])
    # Where every character is a token, spaces are too.
    before, after = not isinstance(tokenizer.library.model, models.WordLevel) or both == a + b, both == a + b
    return with_special(tokenizer, [AddedToken(MASK, lstrip=before, rstrip=after, normalized=False)], mask_token=MASK)


def continuing(tokenizer: Tokenizer) -> np.ndarray:
    """v: whether each token goes on with the word of the token before it.

    A piece with ## does. Other kinds of tokenizer write the space before a word, so that a piece which begins with a
    letter or a digit goes on. A special token never does.
    """
    n, special = tokenizer.vocab_size, special_ids(tokenizer)
    names = [tokenizer.library.id_to_token(i) or "" for i in range(n)]
    model = tokenizer.library.model
    if isinstance(model, models.WordPiece):
        prefix = model.continuing_subword_prefix
        found = [name.startswith(prefix) and name != prefix for name in names]
    else:
        found = [name[:1].isalnum() or name.startswith("<0x") for name in tokenizer.tokens(range(n))]
    return np.array([goes_on and i not in special for i, goes_on in enumerate(found)])
