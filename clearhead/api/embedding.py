"""Texts as a model of sentences reads them, and the vectors of many."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from clearhead.api.reader import Reader
from clearhead.api.sentences import Sentences
from clearhead.errors import UserError


@dataclass(frozen=True)
class SentenceReader:
    """What `embed` puts before a network that reads texts."""

    reader: Reader
    sentences: Sentences
    prompt: str
    """What stands before each text."""

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text after the prompt, cut to the most that are read, with their marks."""
        marks, limit = self._reader.marks(), self.sentences.max_length
        encoded = self._reader.words.encode_batch([self.prompt + text for text in texts])
        if limit is not None:
            room = limit - len(marks)
            if room < 0:
                raise UserError(f"max_seq_length: expected room for {len(marks)} marks, got {limit}; try a larger one")
            left = self.sentences.cuts_left
            encoded = [ids[max(len(ids) - room, 0) :] if left else ids[:room] for ids in encoded]
        return [self._reader.known(marks.around(ids)) for ids in encoded]

    def prompt_length(self) -> int:
        """How many cells of each row hold the prompt: its marks are counted, but for one at its end."""
        if not self.prompt:
            return 0
        alone = replace(self, prompt="").ids([self.prompt])[0]
        words = self._reader.words
        special = {words.library.token_to_id(token) for token in words.special_tokens.values()}
        return len(alone) - (alone[-1:] != [] and alone[-1] in special)

    @cached_property
    def _reader(self) -> Reader:
        if not self.sentences.lowercase:
            return self.reader
        return replace(self.reader, tokenizer=self.reader.words.lowercased())
