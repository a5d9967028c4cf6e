"""Single texts or pairs of texts as the ids that a classifier reads. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from clearhead.brief import brief
from clearhead.config import ClassificationHead, ModelConfig
from clearhead.data.labelled import LabelledText
from clearhead.errors import UserError
from clearhead.text.special_tokens import template_tokens
from clearhead.text.tokenizers import Tokenizer

NO_LIMIT = 1 << 30
"""The length to which nothing is cut."""


def until_padding(ids: list[int], config: ModelConfig, pad_id: int | None) -> list[int]:
    """The ids that a classifier reads. One that reads the last state ignores padding tokens at a text's end."""
    head = config.head
    if config.decoder is None or not isinstance(head, ClassificationHead) or head.pool != "last":
        return ids
    n = next((i for i in range(len(ids), 0, -1) if ids[i - 1] != pad_id), 1)
    return ids[:n]


@dataclass(frozen=True)
class Inputs:
    """Texts as ids with the marks of the tokenizer's template, cut to a length."""

    __repr__ = brief

    ids: list[list[int]]
    types: list[list[int]] | None
    """Which text of a pair each id belongs to; None for single texts."""
    lengths: list[int]
    """Tokens before cutting."""

    @classmethod
    def of(cls, texts: Sequence[tuple[str, ...]], tokenizer: Tokenizer, limit: int) -> Self:
        """Encodes single texts, or pairs. Raises UserError for a mixture of both.

        The longer text of a pair is cut first. A text of which the tokenizer makes nothing, not even marks, becomes its
        unknown token.
        """
        sizes = {len(both) for both in texts}
        if len(sizes) > 1:
            raise UserError("texts: expected all single or all pairs, got both; mend the rows")
        if 2 in sizes:
            pairs = [tokenizer.encode_pair(*both) for both in texts]
            cut = [
                pair if len(pair[0]) <= limit else tokenizer.encode_pair(*both, limit=limit)
                for both, pair in zip(texts, pairs, strict=True)
            ]
            ids, types = (list(side) for side in zip(*cut, strict=True))
            return cls(ids, types, [len(ids) for ids, _ in pairs])
        marks, nothing = template_tokens(tokenizer), [tokenizer.unk_id or 0]
        bare = tokenizer.encode_batch([text for (text,) in texts])
        ids = [marks.around(ids[: max(limit - len(marks), 0)]) or nothing for ids in bare]
        return cls(ids, None, [len(ids) + len(marks) for ids in bare])

    def taken(self, rows: Sequence[int]) -> Self:
        """The inputs with these numbers."""
        types = None if self.types is None else [self.types[i] for i in rows]
        return type(self)([self.ids[i] for i in rows], types, [self.lengths[i] for i in rows])


@dataclass(frozen=True)
class Labelled:
    """Examples and the ids of their texts."""

    examples: Sequence[LabelledText]
    inputs: Inputs

    @classmethod
    def of(cls, examples: Sequence[LabelledText], tokenizer: Tokenizer, limit: int) -> Self:
        """Encodes the examples whose texts are not blank."""
        kept = [example for example in examples if not example.is_blank]
        return cls(kept, Inputs.of([example.texts for example in kept], tokenizer, limit))

    def taken(self, rows: Sequence[int]) -> Self:
        """The examples with these numbers."""
        return type(self)([self.examples[i] for i in rows], self.inputs.taken(rows))
