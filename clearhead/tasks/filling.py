"""The likeliest tokens in place of a text's mask tokens."""

from collections.abc import Sequence

import torch

from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.mode import Evaluating

N_BEST = 5


def fill(
    network: Transformer, tokenizer: Tokenizer, texts: Sequence[str], *, limit: int, n_best: int = N_BEST
) -> list[list[list[tuple[str, float]]]]:
    """For each mask token of each text, the likeliest tokens in its place with their probabilities, best first.

    Raises UserError for a text without the tokenizer's mask token, and for one of more than `limit` tokens.
    """
    mask = tokenizer.need("mask")
    word = tokenizer.library.id_to_token(mask)
    found: list[list[list[tuple[str, float]]]] = []
    with Evaluating(network), torch.inference_mode():
        for number, ids in enumerate(tokenizer.encode_batch(texts, marks=True), start=1):
            places = [i for i, token in enumerate(ids) if token == mask]
            if not places:
                raise UserError(
                    f"text {number}: expected {word} where a word is to be filled in, got none; write {word}"
                )
            if len(ids) > limit:
                raise UserError(
                    f"text {number}: expected at most {limit} tokens, which this model reads, got {len(ids)}; cut it"
                )
            inputs = Tokens(torch.tensor([ids], device=next(network.parameters()).device))
            best = network(inputs)[0, places].float().softmax(-1).topk(min(n_best, tokenizer.vocab_size))
            rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            found.append([[*zip(words_of(tokenizer, some), shares, strict=True)] for some, shares in rows])
    return found


def words_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Each token as text, without the space before it; a special token by its name."""
    return [tokenizer.decode([token]).strip() or tokenizer.tokens([token])[0] for token in ids]
