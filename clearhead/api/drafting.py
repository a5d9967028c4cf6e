"""The draft of a model that writes a text: another model of the same vocabulary, or the text itself."""

from functools import lru_cache
from typing import TYPE_CHECKING

from clearhead.errors import UserError
from clearhead.generation import Draft, check_draft
from clearhead.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    from clearhead.api.model import Model


def draft_of(model: "Model", draft: "Model | str | None") -> Draft | None:
    """What guesses the tokens of `model`. Raises UserError unless it is "lookup" or a model of the same vocabulary."""
    if draft is None or draft == "lookup":
        return draft
    if isinstance(draft, str):
        raise UserError(f'draft: expected a model or "lookup", got {draft!r}; try clearhead.load({draft!r})')
    check_draft(model.network, draft.network)
    if draft.tokenizer is not model.tokenizer:
        _check_same(model.tokenizer, draft.tokenizer)
    return draft.network


@lru_cache(maxsize=4)
def _check_same(ours: Tokenizer, other: Tokenizer) -> None:
    """Raises UserError, which names the first difference, unless both have the same tokens."""
    mine, theirs = ({i: token for token, i in one.library.get_vocab().items()} for one in (ours, other))
    if mine == theirs:
        return
    n, m = len(mine), len(theirs)
    i = next((i for i in sorted(mine) if mine[i] != theirs.get(i)), n)
    found = f"token {i} {mine.get(i)!r} as in the model, got {theirs.get(i)!r}"
    if n != m:
        found += f" ({m:,} tokens, not {n:,})"
    raise UserError(f"draft: expected {found}; use a draft that was trained with the model's tokenizer")
