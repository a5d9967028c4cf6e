"""Reads texts for a sentence encoder, and computes the vectors of many."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import tokenizers
import torch
from torch import Tensor

from clearhead.api.base import ModelBase
from clearhead.api.reader import Input, Reader
from clearhead.api.sentences import Sentences
from clearhead.config import VectorHead
from clearhead.errors import UserError, refuse
from clearhead.model import Tokens
from clearhead.model.mode import Evaluating
from clearhead.model.sentences import vectors
from clearhead.model.transformer import Stack
from clearhead.text import formats
from clearhead.text.formats.bounds import bounded
from clearhead.text.tokenizers import Tokenizer

AT_ONCE = 64
"""Texts of one batch."""


@dataclass(frozen=True)
class SentenceReader:
    """The reader of texts for `embed`."""

    reader: Reader
    sentences: Sentences
    prompt: str
    """The prompt before each text."""

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text after the prompt, cut to the longest length, with special tokens."""
        limit, least = self.sentences.max_length, len(self._reader.special_tokens())
        if limit is not None and limit < least:
            raise refuse("max_seq_length", f"room for {least} special tokens", limit, "try a larger one")
        cut = self._reader.cut_ids(texts, limit=limit, prompt=self.prompt, cuts_left=self.sentences.cuts_left)
        return [ids for ids, _ in cut]

    def prompt_length(self) -> int:
        """The number of cells of each row that hold the prompt, with its special tokens except one at its end."""
        if not self.prompt:
            return 0
        alone = replace(self, prompt="").ids([self.prompt])[0]
        words = self._reader.words
        special = {words.library.token_to_id(token) for token in words.special_tokens.values()}
        return len(alone) - (alone[-1:] != [] and alone[-1] in special)

    def vectors(self, stack: Stack, tokens: Tokens) -> Tensor:
        """The sentence encoder's vectors of the states of a stack, b d."""
        states, layout = stack(tokens)
        return vectors(self.sentences.steps, layout.unpack(states), layout.valid, prompt=self.prompt_length())

    @cached_property
    def _reader(self) -> Reader:
        if not self.sentences.lowercase:
            return self.reader
        return replace(self.reader, tokenizer=lowercased(self.reader.words))


def vectors_of(model: ModelBase, texts: Sequence[Input], reads: SentenceReader) -> Tensor:
    """The vector of each text, b d. More than AT_ONCE texts are read in batches of similar lengths."""
    stack, order = next(iter(model.network.stacks().values())), [*range(len(texts))]
    if len(order) > AT_ONCE:
        order.sort(key=lambda i: len(text) if isinstance(text := texts[i], str) else 0)
    has_vector = isinstance(model.config.head, VectorHead)
    parts = [order[at : at + AT_ONCE] for at in range(0, len(texts), AT_ONCE)] or [[]]
    with Evaluating(model.network), torch.inference_mode():
        vectors: list[Tensor] = []
        for part in parts:
            some = [texts[i] for i in part]
            batch = model.reader.batch(some, pad_id=model.generation.pad_id, encode=reads.ids)
            tokens = model.here(batch)
            vectors.append(model.network(tokens) if has_vector else reads.vectors(stack, tokens))
    return torch.cat(vectors)[torch.tensor(order, dtype=torch.long).argsort()]


def lowercased(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer for texts in lower case. Raises UserError for one with two vocabularies."""
    if formats.MODEL_FILE not in tokenizer.to_files():
        raise UserError("do_lower_case: expected one vocabulary for all texts, got two; try model.network")
    library = tokenizers.Tokenizer.from_str(tokenizer.library.to_str())
    library.encode_special_tokens = tokenizer.library.encode_special_tokens
    before = [] if library.normalizer is None else [library.normalizer]
    library.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.Lowercase(), *before])
    changed = copy(tokenizer)
    changed.library = bounded(library)
    return changed
