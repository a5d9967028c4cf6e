"""How a tokenizer cuts a text: its words, the pieces each begins as, and every merge up to its tokens."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field

from clearhead.errors import UserError
from clearhead.explorer.answering.answers import TokenizeReply
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.questions import Asked, Reply
from clearhead.explorer.recording.facts import Token
from clearhead.explorer.recording.tokens import spans_of
from clearhead.text.merges import BytePairModel
from clearhead.text.schemes import SPACE
from clearhead.text.tokenizers import Tokenizer

LONGEST_HISTORY = 256
"""The most pieces of a word whose merges are listed."""
UNSEEN = "\0"
"""Stands for a character that the tokenizer does not know."""

Word = list[int]
"""The positions of its tokens."""


class TokenizeQuestion(Asked):
    """Asks how a text is cut."""

    text: Annotated[str, Field(max_length=20_000)]
    """Shorter than what a pass reads: the reply holds every merge of every word."""
    target: bool = False


def tokenize(opened: Opened, question: TokenizeQuestion) -> Reply[TokenizeReply]:
    """The words of the text, each with its tokens and merges."""
    return Reply(tokenized(opened.model.tokenizer, question.text, target=question.target))


def tokenized(tokenizer: Tokenizer, text: str, *, target: bool = False) -> dict[str, Any]:
    """The words of a text as this tokenizer cuts it. Only byte-pair encoding has merges."""
    ids = tokenizer.encode(text, target=target)
    encoding = tokenizer.library.encode(text, add_special_tokens=False)
    # A tokenizer with two sides may cut a text differently from its library.
    pieces, parts = (encoding.tokens, encoding.word_ids) if encoding.ids == ids else (None, [0] * len(ids))
    shown, spans = tokenizer.tokens(ids), spans_of(tokenizer, text, ids)
    words: list[dict[str, object]] = []
    for word in _words(shown, parts):
        places = [span for i in word if (span := spans[i]) is not None]
        start, end = (places[0][0], max(end for _, end in places)) if places else (0, 0)
        bare = text[start:end].lstrip()
        start = end - len(bare) if bare else start  # A space before it may be a token by itself.
        tokens = [Token(id=ids[i], text=shown[i], span=spans[i]) for i in word]
        history = _history(tokenizer, [pieces[i] for i in word]) if pieces is not None else None
        first, merges = history or ([shown[i] for i in word], [])
        words.append(
            {
                "text": text[start:end],
                "span": (start, end),
                "start": first,
                "merges": merges,
                "tokens": [token.model_dump(mode="json") for token in tokens],
            }
        )
    return {"words": words, "unknown": tokenizer.unknown(text)}


def _words(shown: Sequence[str], parts: Sequence[int | None]) -> list[Word]:
    """Groups tokens into words: a word ends before a token that begins with a space, and at the end of a part."""
    words: list[Word] = []
    for i, (piece, part) in enumerate(zip(shown, parts, strict=True)):
        joins = words and part is not None and part == parts[i - 1]
        alone = bool(joins) and not shown[i - 1].strip(SPACE)
        if joins and (alone or not piece.startswith(SPACE)):
            words[-1].append(i)
        else:
            words.append([i])
    return words


def _history(tokenizer: Tokenizer, pieces: Sequence[str]) -> tuple[list[str], list[dict[str, object]]] | None:
    """The pieces before any merge, and each merge with the pieces after it; None for a tokenizer without merges."""
    ranks = _ranks(tokenizer)
    if ranks is None or len(pieces) > LONGEST_HISTORY:
        return None
    known = [UNSEEN if piece == ranks.unknown else piece for piece in pieces]
    word = known[0] + "".join(piece.removeprefix(ranks.prefix) for piece in known[1:])
    word = word.removesuffix(ranks.suffix)
    if len(word) > LONGEST_HISTORY:
        return None
    start, history = ranks.start(word), ranks.replay(word)
    if (history[-1][1] if history else start) != list(pieces):
        return None  # Bytes of a character that has no piece.

    def shown(names: Sequence[str]) -> list[str]:
        ids = [tokenizer.library.token_to_id(name) for name in names]
        return [text if i is None else tokenizer.tokens([i])[0] for i, text in zip(ids, names, strict=True)]

    merges: list[dict[str, object]] = []
    for merge, after in history:
        left, right = shown([merge.left, merge.right])
        merges.append({"left": left, "right": right, "rank": merge.rank, "pieces": shown(after)})
    return shown(start), merges


@lru_cache(maxsize=4)
def _ranks(tokenizer: Tokenizer) -> BytePairModel | None:
    model: Mapping[str, object] = json.loads(tokenizer.library.to_str())["model"]
    try:
        return BytePairModel.of(model)
    except UserError:
        return None
