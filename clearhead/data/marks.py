"""What stands around a text where a network reads or writes it: one place, so that training and use cannot differ."""

from collections.abc import Sequence
from dataclasses import dataclass

from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import UserError
from clearhead.recipe.generation import GenerationConfig

PROBE = "a 1 é я ا 中"
"""Whatever its script, a tokenizer knows some of this."""


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
    """Those of the tokenizer's own template, as it puts them around any text; none where it has no template."""
    if not tokenizer.has_marks:
        return Marks()
    bare = tokenizer.encode(PROBE, target=target)
    marked = tokenizer.encode(PROBE, marks=True, target=target)
    at = next((i for i in range(len(marked)) if bare and marked[i : i + len(bare)] == bare), None)
    if at is None:
        raise UserError("tokenizer: expected a template around a text, got one without; try its own tokenizer.json")
    return Marks(tuple(marked[:at]), tuple(marked[at + len(bare) :]))


def source_marks(tokenizer: Tokenizer) -> Marks:
    """Of what an encoder reads: the template's, else the end token."""
    return template_marks(tokenizer) if tokenizer.has_marks else Marks(after=(tokenizer.need("eos"),))


def target_marks(tokenizer: Tokenizer, generation: GenerationConfig) -> Marks:
    """Of what a decoder writes after its start token: the template's, or the forced first token; always an end."""
    own, first = template_marks(tokenizer, target=True), generation.forced_first_id
    return Marks(own.before if first is None else (first,), _ended(own.after, tokenizer, generation))


def document_marks(tokenizer: Tokenizer, generation: GenerationConfig) -> Marks:
    """Of a document of a language model: the template's, else the begin token if there is one; always an end."""
    own, begin = template_marks(tokenizer), tokenizer.bos_id
    if not tokenizer.has_marks and begin is not None:
        own = Marks(before=(begin,))
    return Marks(own.before, _ended(own.after, tokenizer, generation))


def _ended(after: tuple[int, ...], tokenizer: Tokenizer, generation: GenerationConfig) -> tuple[int, ...]:
    """With a token at which generation ends."""
    ends = generation.end_ids or (tokenizer.need("eos"),)
    if set(after) & set(ends):
        return after
    own = tokenizer.eos_id
    return (*after, ends[0] if own is None or own not in ends else own)
