"""The answer that an analysis asks about, by its text."""

from clearhead.api.model import Model
from clearhead.checkpoints.weights.documents import shown
from clearhead.config import LanguageHead
from clearhead.errors import UserError


def answer_id(model: Model, text: str, *, name: str) -> int:
    """The id of a token, by its text or as the tools show it (▁nine), or of a label, by its name or number.

    Raises UserError, which begins with `--name`, if no one token or label is meant.
    """
    if isinstance(model.config.head, LanguageHead) and model.has_tokenizer:
        return _token(model, text, name)
    labels = list(getattr(model.config.head, "labels", None) or ())
    if text in labels:
        return labels.index(text)
    if text.isdecimal():
        return int(text)
    expected = f"one of {', '.join(labels[:20])}" if labels else "a number"
    raise UserError(f"--{name}: expected {expected}, got {shown(text)}")


def _token(model: Model, text: str, name: str) -> int:
    # Where a token holds no space, a space before the word is no mistake.
    cut = [model.tokenizer.encode(one, target=model.is_encoder_decoder) for one in (text, text.strip())]
    ids = next((one for one in cut if len(one) == 1), None)
    if ids is not None:
        return ids[0]
    vocabulary = model.tokenizer.tokens(range(model.tokenizer.vocab_size))
    if text in vocabulary:
        return vocabulary.index(text)
    pieces = ", ".join(map(repr, model.tokenizer.tokens(cut[0])))
    raise UserError(f"--{name}: expected one token, got {shown(text)}, which is {pieces or 'none'}; give one of them")
