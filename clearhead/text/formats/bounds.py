"""Finds tokenizers that may need far more memory or time than their texts have characters. Imports no torch.

The library runs a file's rules as they stand: three replacements that follow each other make a terabyte of a line,
and a regular expression may backtrack for hours. What is not known to be harmless runs in a process of its own
(`worker.py`).
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import dropwhile
from math import inf, prod
from typing import Any, NamedTuple, cast

import tokenizers

from clearhead.text.formats.checked import json_object
from clearhead.text.schemes import patterns
from clearhead.text.worker import Worker

MOST_GROWTH = 100
"""Characters that the rules may make of one: SentencePiece's own make 33, and bytes are two characters each."""
MOST_STEPS = 64
LONGEST = 64
"""Characters of a prefix, or parts of a template."""
LONGEST_WORD = 1000
"""Characters of a word that WordPiece looks up: it takes their square."""
LONGEST_PIECE = 1 << 13
"""Characters that one id may decode to."""
HARMLESS = frozenset(
    "NFC NFD NFKC NFKD Lowercase Strip StripAccents Nmt Whitespace WhitespaceSplit "
    "Punctuation Digits Metaspace CharDelimiterSplit UnicodeScripts FixedLength ByteFallback Fuse CTC".split()
)
PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
LONGEST_PATTERN = 2000
MOST_WAYS = 64
"""Ways to read the optional parts of an alternative."""
_ATOM = r"\\[pP]\{\^?\w+\}|\\(?:[dDsSwWnrtfv]|[^\w\s])|[^()|?*+{}\\\[\]]"
_CLASS = r"\[(?:[^\[\]\\]|\\.|\[(?:[^\[\]\\]|\\.)*\])+\]"
_ITEM = re.compile(
    rf"(?P<atom>(?P<group>\((?:\?(?:i?:|<?[=!]|>))?(?:{_ATOM}|{_CLASS}|\|)*\))|{_ATOM}|{_CLASS})"
    r"(?P<times>[?*+]\+?|\{\d{1,2}(?:,\d{0,2})?\})?"
)
_OPTIONAL, _LONG = ("?", "*"), ("*", "+", "{")


def unbounded(parts: Mapping[str, Any]) -> bool:
    """True if the rules (a tokenizer.json, or `parts_of`) are not known to be harmless."""
    try:
        normalizing, splitting, ending, decoding = (list(steps_of(parts.get(name))) for name in PARTS)
        grows = max(prod(map(_growth, [*normalizing, *splitting])), prod(map(_growth, decoding))) > MOST_GROWTH
        steps = max(map(len, (normalizing, splitting, ending, decoding))) > MOST_STEPS
        return grows or steps or _repeats(ending) or not _is_plain(parts.get("model") or {})
    except (RecursionError, TypeError, ValueError, AttributeError, KeyError, IndexError):
        return True  # The library may read what this cannot.


def parts_of(library: tokenizers.Tokenizer) -> dict[str, Any]:
    """The rules of an open tokenizer, without its vocabulary."""
    parts = {name: getattr(library, name) for name in PARTS}
    names = ("max_input_chars_per_word", "continuing_subword_prefix", "end_of_word_suffix")
    model = {name: getattr(library.model, name, None) for name in names}
    return {name: None if part is None else json_object(part.__getstate__(), name) for name, part in parts.items()} | {
        "model": model
    }


def steps_of(part: Any) -> Iterator[Mapping[str, Any]]:
    """The steps of a part, in order."""
    if part is None:
        return
    if part["type"] != "Sequence":
        yield part
        return
    for name in ("normalizers", "pretokenizers", "processors", "decoders"):
        for step in part.get(name, ()):
            yield from steps_of(step)


def _growth(step: Mapping[str, Any]) -> float:
    """The most characters that a step makes of one; infinite if its time or memory is unknown."""
    match step:
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)} if old:
            return max(1.0, len(new) / len(old))
        case {"type": "Replace", "pattern": {"Regex": str(pattern)}, "content": str(new)} if is_linear(pattern):
            return 1.0 + len(new)
        case {"type": "Split", "pattern": {"String": str(old)}} if old:
            return 1.0
        case {"type": "Split", "pattern": {"Regex": str(pattern)}} if is_linear(pattern):
            return 1.0
        case {"type": "Precompiled", "precompiled_charsmap": str(rules)}:
            content = base64.b64decode(rules)
            texts = content[4 + int.from_bytes(content[:4], "little") :]
            return float(max(map(len, texts.split(b"\0")), default=1)) or 1.0
        case {"type": "ByteLevel"}:
            return 2.0
        case {"type": "Prepend" | "WordPiece" | "BPEDecoder"}:
            return 1.0 if all(len(value) <= LONGEST for value in step.values() if isinstance(value, str)) else inf
        case {"type": str(kind)} if kind in HARMLESS or kind.endswith(("Normalizer", "PreTokenizer")):
            return 1.0
        case _:
            return inf


def _repeats(steps: list[Mapping[str, Any]]) -> bool:
    """True if a template may write a text many times."""
    n_templates = 0
    for step in steps:
        if step["type"] == "TemplateProcessing":
            n_templates += 1
            texts = [[piece for piece in step[name] if "Sequence" in piece] for name in ("single", "pair")]
            if len(texts[0]) > 1 or len(texts[1]) > 2 or max(len(step["single"]), len(step["pair"])) > LONGEST:
                return True
        elif step["type"] != "ByteLevel" and not step["type"].endswith("Processing"):
            return True
    return n_templates > 1


def _is_plain(model: Mapping[str, Any]) -> bool:
    """True if a model takes about as long as its words are."""
    prefixes = (model.get("continuing_subword_prefix"), model.get("end_of_word_suffix"))
    return (model.get("max_input_chars_per_word") or 0) <= LONGEST_WORD and all(
        len(prefix or "") <= LONGEST for prefix in prefixes
    )


@cache
def is_linear(pattern: str) -> bool:
    """True if a regular expression reads each character of any text a few times at most.

    Nothing that repeats is repeated. An alternative that may fail after a run of characters has only one such run, and
    a later alternative takes the same run whole, or the run must not follow a character of its own kind: no run is
    searched again from each of its characters.
    """
    if pattern in patterns():
        return True
    ways = _alternatives(pattern)
    return ways is not None and all(_is_searched_once(way, ways[i + 1 :]) for i, way in enumerate(ways))


def _alternatives(pattern: str) -> list[list[tuple[str, str]]] | None:
    """The parts of each alternative with their quantifiers; None if the expression is not simple."""
    alternatives: list[list[tuple[str, str]]] = [[]]
    at = 0
    while at < len(pattern) <= LONGEST_PATTERN:
        if pattern[at] == "|":
            alternatives.append([])
            at += 1
        elif (item := _ITEM.match(pattern, at)) and not (item["group"] and (item["times"] or "?")[0] in "+*{"):
            alternatives[-1].append((item["atom"], item["times"] or ""))
            at = item.end()
        else:
            return None
    return alternatives if len(pattern) <= LONGEST_PATTERN else None


def _is_searched_once(items: list[tuple[str, str]], later: list[list[tuple[str, str]]]) -> bool:
    """True if one alternative, with those after it, takes a run that it has read."""
    if prod((1 + (atom[0] == "(") * atom.count("|")) * (1 + (times[:1] == "?")) for atom, times in items) > MOST_WAYS:
        return False
    needed = max((i for i, (_, times) in enumerate(items) if times[:1] not in _OPTIONAL), default=0)
    runs = [atom for atom, times in items[:needed] if times[:1] in _LONG]
    if len(runs) == 1 and items[0] == (f"(?<!{runs[0]})", "") and items[1][0] == runs[0]:
        return True
    for other in later if len(runs) == 1 else ():
        first, *rest = [*dropwhile(lambda item: item[1][:1] == "?", other), ("", "")]
        if first[0] != runs[0] or first[1][:1] not in ("*", "+"):
            return False
        if first[1][:1] == "+" and all(times[:1] in _OPTIONAL for _, times in rest[:-1]):
            return True
    return not runs


# --- tokenizers whose rules have no known bound ---


class Encoding(NamedTuple):
    """The fields of the library's encoding of a text."""

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    type_ids: list[int]
    word_ids: list[int | None]
    sequence_ids: list[int | None]


def bounded(library: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The tokenizer itself if its rules are known to be harmless, otherwise one that runs in a worker."""
    if isinstance(library, TokenizerApart):
        return library
    longest = max(map(len, library.get_vocab(with_added_tokens=True)), default=0)
    if longest <= LONGEST_PIECE and not unbounded(parts_of(library)):
        return library
    return cast("tokenizers.Tokenizer", TokenizerApart(library))


def check(document: str) -> None:
    """Raises UserError if a tokenizer.json cannot even be opened within the limits."""
    _worker(document).ask("open")


def _worker(document: str) -> Worker:
    return Worker("tokenizer", "rules that need", "rules that can read the text", tokenizer=document)


class TokenizerApart:
    """A tokenizer that asks a worker for all that depends on a text, and the library for the rest."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        self.__dict__.update(library=library, worker=_worker(library.to_str()))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["library"], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.library, name, value)
        if name != "encode_special_tokens":  # A rule, which the worker must know.
            self.__dict__["worker"] = _worker(self.library.to_str())

    def encode(self, sequence: Any, pair: str | None = None, **options: bool) -> Encoding:
        """See `tokenizers.Tokenizer`."""
        texts = [sequence if pair is None else [sequence, pair]]
        return self.encode_batch(texts, **options)[0]

    def encode_batch(self, texts: Sequence[Any], **options: bool) -> list[Encoding]:
        """See `tokenizers.Tokenizer`."""
        answers = self.worker.ask("encode", list(texts), self.library.encode_special_tokens, options)
        return [
            Encoding(ids, tokens, [(start, end) for start, end in offsets], *more)
            for ids, tokens, offsets, *more in answers
        ]

    encode_batch_fast = encode_batch

    def decode(self, ids: Sequence[int], **options: bool) -> str:
        """See `tokenizers.Tokenizer`."""
        return self.decode_batch([ids], **options)[0]

    def decode_batch(self, batch: Sequence[Sequence[int]], **options: bool) -> list[str]:
        """See `tokenizers.Tokenizer`."""
        return self.worker.ask("decode", [list(ids) for ids in batch], options)
