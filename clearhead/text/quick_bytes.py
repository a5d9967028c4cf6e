"""Quicker ids of a byte-level vocabulary, by tiktoken's core where they are proven equal. Imports no torch.

tiktoken merges two pieces sooner the lower the rank of their union, while `tokenizers` goes by its list of merges. Both
give the same ids if every merge makes another piece, later merges have larger ids, and every piece is what its own
text becomes. For then two neighbours whose union is a piece are those that its merge joins: until they meet, nothing
has crossed the ends of that piece, so that they are what its own text is made of before its last merge.

Both must cut a text at the same places first. They use different engines for the same regular expression, with other
tables of Unicode. So a character counts only after both engines have put it into the same class.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import chain, pairwise
from typing import Any

import tokenizers

from clearhead.text.formats.byte_pairs import BYTE_VALUES, hidden
from clearhead.text.formats.checked import json_object
from clearhead.text.schemes import byte_patterns

WORTH_IT = 1 << 21
"""Number of characters after which the proof, a part of a second, pays."""
LONGEST = 1 << 17
"""Longer texts are left to the library: a regular expression that backtracks needs memory for each character."""
PART = 2000
"""Number of texts that a thread encodes at once."""
HEADS = ("A", "1", "!", "\t")
"""One character of each class of the regular expressions. Their classes are unions of letters, numbers, whitespace and
the rest, so that what a character joins tells its class."""
SPLIT = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""The regular expression of the library's byte-level splitting (Radford et al. 2019)."""


class Refused(Exception):
    """Why equal ids are not proven."""


class QuickBytes:
    """The encoder of one tokenizer. It works after many characters have been encoded, and only if proven equal."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        self.library = library
        self.why = "few characters so far"
        """Why ids come from the library; empty if tiktoken's core makes them."""
        self._n_characters = 0
        self._core: Any = None
        self._pattern, self._added = "", tuple[str, ...]()
        self._proven, self._refused = set[str](), set[str]()

    def encode(self, texts: Sequence[str]) -> list[list[int] | None] | None:
        """The ids of each text, None for a text that needs the library; None if all do."""
        if self._n_characters < WORTH_IT:
            self._n_characters += sum(map(len, texts))
            if self._n_characters < WORTH_IT:
                return None
            self._begin()
        if self._core is None:
            return None
        parts = [texts[i : i + PART] for i in range(0, len(texts), PART)]
        n_threads = _n_threads()
        if n_threads == 1 or len(parts) == 1:
            return list(chain.from_iterable(map(self._part, parts)))
        with ThreadPoolExecutor(n_threads) as pool:
            return list(chain.from_iterable(pool.map(self._part, parts)))

    def _part(self, texts: Sequence[str]) -> list[list[int] | None]:
        encode = self._core.encode_ordinary
        return [encode(text) if self._is_proven(text) else None for text in texts]

    def _is_proven(self, text: str) -> bool:
        if len(text) > LONGEST or any(content in text for content in self._added):
            return False
        if text.isascii():
            return True
        characters = set(text)
        self._prove(characters - self._proven - self._refused)
        return characters <= self._proven

    def _begin(self) -> None:
        try:
            if find_spec("tiktoken") is None:
                raise Refused("tiktoken is not installed")
            import tiktoken

            parts: dict[str, Any] = {**json_object(self.library.to_str().encode(), "tokenizer.json")}
            self._pattern, self._added = _pattern(parts), _added(parts, self.library)
            ranks = _ranks(self.library, parts["model"])
            core = tiktoken.Encoding("", pat_str=self._pattern, mergeable_ranks=ranks, special_tokens={})
            self._prove(map(chr, range(128)))
            if self._refused:
                raise Refused("the two regular expressions differ in ASCII")
        except Refused as reason:
            self.why = str(reason)
        else:
            self._core, self.why = core, ""

    def _prove(self, characters: Iterable[str]) -> None:
        """Compares the classes of characters in both regular expressions."""
        new = [c for c in characters if not "\ud800" <= c <= "\udfff"]
        if not new:
            return
        import tiktoken

        words = {head + c: head.encode() + c.encode() for c in new for head in HEADS}
        ranks = {bytes([byte]): byte for byte in range(256)}
        for raw in words.values():
            for end in range(2, len(raw) + 1):
                ranks.setdefault(raw[:end], len(ranks))
        joiner = tiktoken.Encoding("", pat_str=self._pattern, mergeable_ranks=ranks, special_tokens={})
        splitter = self.library.pre_tokenizer
        wrong = {
            word[1:]
            for word in words
            if (len(joiner.encode_ordinary(word)) == 1) != (len(splitter.pre_tokenize_str(word)) == 1)
        }
        self._refused |= wrong
        self._proven |= set(new) - wrong


def _pattern(parts: Mapping[str, Any]) -> str:
    """The regular expression that splits texts, if the tokenizer splits them in a way that is known."""
    if parts["normalizer"] is not None:
        raise Refused("the tokenizer changes characters first")
    match parts["pre_tokenizer"]:
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}:
            return SPLIT
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        } if pattern in byte_patterns():
            return pattern
        case _:
            raise Refused("the tokenizer splits texts in another way")


def _added(parts: Mapping[str, Any], library: tokenizers.Tokenizer) -> tuple[str, ...]:
    """The tokens that the library finds in a text before it splits it."""
    return tuple(
        token["content"] for token in parts["added_tokens"] if not (token["special"] and library.encode_special_tokens)
    )


def _ranks(library: tokenizers.Tokenizer, model: Mapping[str, Any]) -> dict[bytes, int]:
    """The id of each piece by its bytes, if the conditions of the proof hold."""
    plain = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges")
    if model["type"] != "BPE" or any(model.get(name) for name in plain):
        raise Refused("the model is no plain byte-pair encoding")
    ids: dict[str, int] = model["vocab"]
    merges = [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"]]
    made = [a + b for a, b in merges]
    if len(set(made)) < len(made) or any(len(piece) == 1 for piece in made):
        raise Refused("two merges make one piece")
    numbers = [ids[piece] for piece in made]
    if any(a >= b for a, b in pairwise(numbers)):
        raise Refused("ids do not follow the order of merges")
    if any(character not in ids for character in BYTE_VALUES):
        raise Refused("a byte has no id")
    if any([token.value for token in library.model.tokenize(piece)] != [piece] for piece in made):
        raise Refused("a piece is not what its own text becomes")
    pieces = {piece: ids[piece] for piece in (*BYTE_VALUES, *made)}
    return {raw: i for piece, i in pieces.items() if (raw := hidden(piece)) is not None}


def _n_threads() -> int:
    """As many as the library's own batches would use."""
    if os.environ.get("TOKENIZERS_PARALLELISM", "").lower() not in ("1", "on", "true", "yes", "y", "t"):
        return 1
    chosen = os.environ.get("RAYON_NUM_THREADS", "")
    return int(chosen) if chosen.isdecimal() and int(chosen) else os.cpu_count() or 1
