"""Special tokens of a vocabulary, and around the texts that a network reads or writes. Imports no torch."""

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
class SpecialTokens:
    """Tokens before and after a text's own."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.before) + len(self.after)

    def around(self, ids: Sequence[int]) -> list[int]:
        """before ids after"""
        return [*self.before, *ids, *self.after]


def template_tokens(tokenizer: Tokenizer, *, target: bool = False) -> SpecialTokens:
    """The special tokens that the tokenizer's own template puts around any text. Empty if it has no template."""
    if not tokenizer.has_template:
        return SpecialTokens()
    bare = tokenizer.encode(PROBE, target=target)
    marked = tokenizer.encode(PROBE, special_tokens=True, target=target)
    at = next((i for i in range(len(marked)) if bare and marked[i : i + len(bare)] == bare), None)
    if at is None:
        raise UserError("tokenizer: expected a template around a text, got one without; try its own tokenizer.json")
    return SpecialTokens(tuple(marked[:at]), tuple(marked[at + len(bare) :]))


def roles(tokenizer: Tokenizer) -> dict[str, str]:
    """The names by which users of an encoder know the token before two texts and the one between them."""
    pair = tokenizer.library.encode(PROBE, PROBE)
    texts = pair.sequence_ids
    marks = [at for at, text in enumerate(texts) if text is None]
    places = {"cls_token": [at for at in marks if at == 0], "sep_token": [at for at in marks if texts[at - 1] == 0]}
    found = {name: pair.tokens[at[0]] for name, at in places.items() if at}
    return {name: token for name, token in found.items() if name not in tokenizer.settings}


def source_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """The special tokens around an encoder's input: the template's, or an end token without a template."""
    return template_tokens(tokenizer) if tokenizer.has_template else SpecialTokens(after=(tokenizer.need("eos"),))


def target_tokens(tokenizer: Tokenizer, generation: GenerationConfig) -> SpecialTokens:
    """The special tokens of a decoder's output after its start token.

    The first is the forced one or the template's. The last ends the text.
    """
    own, first = template_tokens(tokenizer, target=True), generation.forced_first_id
    return SpecialTokens(own.before if first is None else (first,), _ended(own.after, tokenizer, generation))


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


def document_tokens(tokenizer: Tokenizer, generation: GenerationConfig) -> SpecialTokens:
    """The special tokens around a language model's document.

    The first is the template's or the begin token, if the tokenizer has one. The last ends the text.
    """
    own, begin = template_tokens(tokenizer), tokenizer.bos_id
    if not tokenizer.has_template and begin is not None:
        own = SpecialTokens(before=(begin,))
    return SpecialTokens(own.before, _ended(own.after, tokenizer, generation))


def _ended(after: tuple[int, ...], tokenizer: Tokenizer, generation: GenerationConfig) -> tuple[int, ...]:
    """`after`, with an end token of generation appended if it has none."""
    ends = generation.end_ids or (tokenizer.need("eos"),)
    if set(after) & set(ends):
        return after
    own = tokenizer.eos_id
    return (*after, ends[0] if own is None or own not in ends else own)


MASK = "<mask>"


def special_ids(tokenizer: Tokenizer) -> set[int]:
    """The ids of tokens that are no part of a text, such as padding."""
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
        continues = [name.startswith(prefix) and name != prefix for name in names]
    else:
        continues = [name[:1].isalnum() or name.startswith("<0x") for name in tokenizer.tokens(range(n))]
    return np.array([goes_on and i not in special for i, goes_on in enumerate(continues)])
