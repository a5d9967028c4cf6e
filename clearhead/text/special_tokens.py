"""Special tokens: those around a text that a network reads or writes, and those of a vocabulary. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tokenizers
from tokenizers import AddedToken, models

from clearhead.errors import UserError
from clearhead.recipe.generation import GenerationConfig
from clearhead.text.tokenizers import Tokenizer

PROBE = "a 1 é я ا 中"
"""A text in several scripts, so that every tokenizer knows some of it."""


@dataclass(frozen=True)
class Marks:
    """Tokens before and after a text's own."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.before) + len(self.after)

    def around(self, ids: Sequence[int]) -> list[int]:
        """before ids after"""
        return [*self.before, *ids, *self.after]


def template_marks(tokenizer: Tokenizer, *, target: bool = False) -> Marks:
    """The marks that the tokenizer's own template puts around any text. Empty if it has no template."""
    if not tokenizer.has_marks:
        return Marks()
    bare = tokenizer.encode(PROBE, target=target)
    marked = tokenizer.encode(PROBE, marks=True, target=target)
    at = next((i for i in range(len(marked)) if bare and marked[i : i + len(bare)] == bare), None)
    if at is None:
        raise UserError("tokenizer: expected a template around a text, got one without; try its own tokenizer.json")
    return Marks(tuple(marked[:at]), tuple(marked[at + len(bare) :]))


def source_marks(tokenizer: Tokenizer) -> Marks:
    """The marks of an encoder's input: the template's if there is one, otherwise the end token."""
    return template_marks(tokenizer) if tokenizer.has_marks else Marks(after=(tokenizer.need("eos"),))


def target_marks(tokenizer: Tokenizer, generation: GenerationConfig) -> Marks:
    """The marks of a decoder's output after its start token: the template's or the forced first token, and an end."""
    own, first = template_marks(tokenizer, target=True), generation.forced_first_id
    return Marks(own.before if first is None else (first,), _ended(own.after, tokenizer, generation))


def start_token(tokenizer: Tokenizer, generation: GenerationConfig) -> int:
    """The first token of a decoder after an encoder: the settings' start token, otherwise the tokenizer's."""
    return tokenizer.need("bos") if generation.start_id is None else generation.start_id


def start_again(tokenizer: Tokenizer, generation: GenerationConfig, texts: Sequence[Sequence[int]]) -> int:
    """The start token of a decoder that reads the encoder's texts again to classify them.

    Raises UserError if a text does not end where the classifier reads.
    """
    last = next((ids[-1] for ids in texts if ids and generation.end_ids and ids[-1] not in generation.end_ids), None)
    if last is not None:
        raise UserError(
            f"eos_token_id: expected {last}, the last token of a text, where the classifier reads,"
            f" got {generation.end_ids[0]}; try the settings it was saved with"
        )
    return start_token(tokenizer, generation)


def document_marks(tokenizer: Tokenizer, generation: GenerationConfig) -> Marks:
    """The marks of a language model's document: the template's or the begin token if there is one, and an end."""
    own, begin = template_marks(tokenizer), tokenizer.bos_id
    if not tokenizer.has_marks and begin is not None:
        own = Marks(before=(begin,))
    return Marks(own.before, _ended(own.after, tokenizer, generation))


def _ended(after: tuple[int, ...], tokenizer: Tokenizer, generation: GenerationConfig) -> tuple[int, ...]:
    """`after`, with an end token of generation appended if it has none."""
    ends = generation.end_ids or (tokenizer.need("eos"),)
    if set(after) & set(ends):
        return after
    own = tokenizer.eos_id
    return (*after, ends[0] if own is None or own not in ends else own)


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
