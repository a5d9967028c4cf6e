"""Records of words, vocabularies and lookups by key."""

from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from clearhead_lab.examples.parts import Compute, Statement, mixed, scores_of, weights_of
from clearhead_lab.examples.records import Inputs


def tokenizer(vocabulary: dict[str, int]) -> Tokenizer:
    """Words between spaces, with these ids."""
    words = Tokenizer(WordLevel(vocabulary))
    words.pre_tokenizer = WhitespaceSplit()
    return words


def _s0_01(i: Inputs) -> Any:
    vocabulary = {f"word {n}": n for n in range(50_000)}
    vocabulary = {word: n for word, n in vocabulary.items() if n not in i["vocab"].values()} | i["vocab"]
    words = tokenizer(vocabulary)
    return [*words.encode(i["text"]).ids, words.get_vocab_size() - 1]


def _s0_48(i: Inputs) -> Any:
    vocabulary = {word: n for n, word in enumerate(dict.fromkeys(f"{i['a']} {i['b']}".split()))}
    return [len(tokenizer(vocabulary).encode(i[name]).ids) for name in "ab"]


def _s4_03(i: Inputs) -> Any:
    vocabulary = {word: n for n, word in enumerate(dict.fromkeys(map(str.lower, i["words"])))}
    words = tokenizer(vocabulary)
    return len(set(words.encode(" ".join(i["words"]).lower()).ids))


def _s4_04(i: Inputs) -> Any:
    return tokenizer({word: n for n, word in enumerate(i["order"], start=1)}).encode(" ".join(i["words"])).ids


def _s4_33(i: Inputs) -> Statement:
    """The store as hard attention: one-hot keys, large scores, and the number of its letter as an order's value."""
    first, last = i["orders"]
    orders = torch.eye(last - first + 1, dtype=torch.float64)
    numbers = mixed(weights_of(scores_of(200 * orders, orders)), [[float(n)] for n in range(len(orders))]).flatten()
    one, other = (chr(ord("a") + round(numbers[n - first].item())) for n in i["asked"])
    return Statement((one, other) == ("e", "g"), f"{one}1 and {one}2, {other}1 and {other}2")


COMPUTED: dict[str, Compute] = {
    "s0-01": _s0_01,
    "s0-48": _s0_48,
    "s4-03": _s4_03,
    "s4-04": _s4_04,
    "s4-33": _s4_33,
}
