"""The likeliest tokens in place of a text's mask tokens."""

from collections.abc import Sequence

import torch

from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.mode import Evaluating
from clearhead.text.special_tokens import template_tokens
from clearhead.text.tokenizers import Tokenizer

N_BEST = 5


def fill(
    network: Transformer, tokenizer: Tokenizer, texts: Sequence[str], *, limit: int, n_best: int = N_BEST
) -> list[list[list[tuple[str, float]]]]:
    """For each mask token of each text, the likeliest tokens in its place with their probabilities, best first.

    A text of more than `limit` tokens is read in pieces, as in training and evaluation. Raises UserError for a text
    without the tokenizer's mask token.
    """
    mask, marks = tokenizer.need("mask"), template_tokens(tokenizer)
    room = max(limit - len(marks), 1)
    found: list[list[list[tuple[str, float]]]] = []
    with Evaluating(network), torch.inference_mode():
        for number, ids in enumerate(tokenizer.encode_batch(texts), start=1):
            if mask not in ids:
                word = tokenizer.library.id_to_token(mask)
                raise UserError(
                    f"text {number}: expected {word} where a word is to be filled in, got none; write {word}"
                )
            rows: list[tuple[list[int], list[float]]] = []
            for start in range(0, len(ids), room):
                piece = marks.around(ids[start : start + room])
                if places := [i for i, token in enumerate(piece) if token == mask]:
                    inputs = Tokens(torch.tensor([piece], device=next(network.parameters()).device))
                    best = network(inputs)[0, places].float().softmax(-1).topk(min(n_best, tokenizer.vocab_size))
                    rows += zip(best.indices.tolist(), best.values.tolist(), strict=True)
            found.append([[*zip(words_of(tokenizer, some), shares, strict=True)] for some, shares in rows])
    return found


def words_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Each token as text, without the space before it; a special token by its name."""
    return [tokenizer.decode([token]).strip() or tokenizer.tokens([token])[0] for token in ids]
