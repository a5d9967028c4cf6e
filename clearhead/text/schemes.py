"""Trains tokenizers: each kind normalises, splits, models and rejoins text in its own way. Imports no torch.

Kinds other than bytes write a space as SPACE at the front of the next piece, and add one in front of the text.
So a word is the same piece at the start of a line as inside it, and decoding restores every space.
"""

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, assert_never

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.models import Model

from clearhead.recipe.tokenizers import BPE, N_SPECIAL, ByteBPE, Characters, TokenizerConfig, Unigram, WordPiece, Words

PAD, UNK, BOS, EOS = "<pad>", "<unk>", "<bos>", "<eos>"
SPECIAL = (PAD, UNK, BOS, EOS)
"""In the order of their ids, from 0."""
assert len(SPECIAL) == N_SPECIAL

SPACE = "▁"
"""U+2581, which stands for a space inside a piece."""

Trainer = trainers.BpeTrainer | trainers.UnigramTrainer | trainers.WordLevelTrainer


def quiet() -> None:
    """Stops the library's warning about threads and fork(), unless the user has set its variable."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


LONGEST_WORD = 1000
"""Characters. Each merge rewrites the words that it occurs in, so a word of megabytes would cost minutes."""
_LONG = re.compile(rf"(\S{{{LONGEST_WORD}}}(?=\S)|\s{{{LONGEST_WORD}}}(?=\s))")


def fit(config: TokenizerConfig, texts: Iterator[str]) -> tokenizers.Tokenizer:
    """Trains a tokenizer. The same texts and config always give the same one.

    Text without a break is read in parts of LONGEST_WORD characters.
    """
    tokenizer, trainer = _build(config)
    parts = (part for text in texts for part in (_LONG.split(text) if len(text) > LONGEST_WORD else (text,)))
    tokenizer.train_from_iterator(filter(None, parts), trainer)
    match config:
        case Unigram():
            return _in_stable_order(tokenizer)
        case WordPiece():
            return _from_marked_starts(tokenizer, config)
        case _:
            return tokenizer


def joins_at_spaces(config: TokenizerConfig) -> bool:
    """True if the start of a text is read as if a space preceded it."""
    return isinstance(config, BPE | Unigram | Words)


def _build(config: TokenizerConfig) -> tuple[tokenizers.Tokenizer, Trainer]:
    """An untrained tokenizer and the trainer that fits it."""
    n_characters = config.vocab_size - N_SPECIAL
    common: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "special_tokens": list(SPECIAL),
        "show_progress": False,
    }
    if isinstance(config, Unigram):
        return _spaced(models.Unigram(), config), trainers.UnigramTrainer(unk_token=UNK, **common)
    common["min_frequency"] = config.min_frequency
    match config:
        case ByteBPE():
            splits = _splitter(_pattern(" ", split_digits=config.split_digits, mark_run=True))
            to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            library = _tokenizer(
                models.BPE(), config, pre_tokenizers.Sequence([splits, to_bytes]), decoders.ByteLevel()
            )
            alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
            return library, trainers.BpeTrainer(initial_alphabet=alphabet, **common)
        case BPE():
            library = _spaced(models.BPE(unk_token=UNK), config)
            return library, trainers.BpeTrainer(limit_alphabet=n_characters, **common)
        case Words():
            return _spaced(models.WordLevel(unk_token=UNK), config), trainers.WordLevelTrainer(**common)
        case Characters():
            library = _tokenizer(models.WordLevel(unk_token=UNK), config, _splitter(r"[\s\S]"), decoders.Fuse())
            return library, trainers.WordLevelTrainer(**common)
        case WordPiece():
            # Byte-pair encoding of words that begin with SPACE, which `_from_marked_starts` turns into WordPiece.
            # A character may be needed twice: at the front of a word and after ##.
            marks = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always", split=False)
            library = _tokenizer(models.BPE(unk_token=UNK), config, pre_tokenizers.Sequence([*_words(config), marks]))
            common["initial_alphabet"] = sorted(pre_tokenizers.ByteLevel.alphabet()) if config.bytes else []
            return library, trainers.BpeTrainer(limit_alphabet=max(n_characters // 2, 1 + 255 * config.bytes), **common)
        case _:
            assert_never(config)


def _tokenizer(
    model: Model,
    config: TokenizerConfig,
    splits: pre_tokenizers.PreTokenizer,
    joins: decoders.Decoder | None = None,
    *spaces: normalizers.Normalizer,
) -> tokenizers.Tokenizer:
    """A tokenizer with this model, which normalises text as the config says and then treats its spaces."""
    tokenizer = tokenizers.Tokenizer(model)
    steps = [*_normalizers(config), *spaces]
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = splits
    if joins is not None:
        tokenizer.decoder = joins
    return tokenizer


def _spaced(model: Model, config: BPE | Unigram | Words) -> tokenizers.Tokenizer:
    splits = _splitter(_pattern(SPACE, split_digits=config.split_digits, mark_run=False))
    joins = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return _tokenizer(model, config, splits, joins, normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE))


def _words(config: WordPiece) -> list[pre_tokenizers.PreTokenizer]:
    pattern = _word_pattern(split_digits=config.split_digits, times="{1,250}" if config.bytes else "+")
    to_bytes = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)] if config.bytes else []
    return [pre_tokenizers.WhitespaceSplit(), _splitter(pattern), *to_bytes]


def _word_pattern(*, split_digits: bool, times: str = "+") -> str:
    number = r"\p{N}" + ("" if split_digits else times)
    ideograph = r"\p{Han}"
    return rf"{ideograph}|[\p{{L}}\p{{M}}&&[^{ideograph}]]{times}|{number}|[^\p{{L}}\p{{M}}\p{{N}}]"


def _from_marked_starts(trained: tokenizers.Tokenizer, config: WordPiece) -> tokenizers.Tokenizer:
    """WordPiece with the merged pieces: "▁ab" becomes "ab", "ab" becomes "##ab".

    The library's own trainer numbers the ## characters in hash-table order, which differs from run to run.
    """
    ids = trained.get_vocab(with_added_tokens=False)
    pieces = [piece for piece in sorted(ids, key=ids.__getitem__) if piece not in SPECIAL and piece != SPACE]
    alphabet = [piece for piece in pieces if len(piece) == 1]
    longer = [p.removeprefix(SPACE) if p.startswith(SPACE) else f"##{p}" for p in pieces if len(p) > 1]
    names = dict.fromkeys([*SPECIAL, *alphabet, *(f"##{c}" for c in alphabet), *longer])
    vocabulary = {name: i for i, name in enumerate(list(names)[: max(config.vocab_size, 516 * config.bytes)])}
    longest = LONGEST_WORD if config.bytes else 100
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=UNK, max_input_chars_per_word=longest))
    if trained.normalizer is not None:
        tokenizer.normalizer = trained.normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(_words(config))
    joins = decoders.WordPiece(prefix="##", cleanup=True)
    from_bytes = [decoders.Replace(" ", "Ġ"), decoders.ByteLevel()]
    tokenizer.decoder = decoders.Sequence([joins, *from_bytes]) if config.bytes else joins
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def _in_stable_order(trained: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The unigram model with rounded scores, and pieces of equal score in alphabetical order.

    The library sums in hash-table order. It gives characters that no piece holds the lowest score plus 0.0001 for
    each one before it in that order. Here those characters get the same scores in alphabetical order.
    """
    whole = json.loads(trained.to_str())
    vocabulary = [(str(piece), round(float(score), 9)) for piece, score in whole["model"]["vocab"]]
    special, pieces = vocabulary[:N_SPECIAL], dict(vocabulary[N_SPECIAL:])
    lowest = min(pieces.values(), default=0.0)
    rest = [p for p, s in pieces.items() if len(p) == 1 and abs((s - lowest + 5e-5) % 1e-4 - 5e-5) < 1e-8]
    pieces |= dict(zip(sorted(rest), sorted(pieces[p] for p in rest), strict=True))
    whole["model"]["vocab"] = special + sorted(pieces.items(), key=lambda item: (-item[1], item[0]))
    return tokenizers.Tokenizer.from_str(json.dumps(whole, ensure_ascii=False))


def _normalizers(config: TokenizerConfig) -> list[normalizers.Normalizer]:
    steps: list[normalizers.Normalizer] = []
    if config.normalization is not None:
        steps.append(normalizers.NFC() if config.normalization == "nfc" else normalizers.NFKC())
    if config.lowercase:
        steps.append(normalizers.Lowercase())
    return steps


def _pattern(space: str, *, split_digits: bool, mark_run: bool) -> str:
    """Matches words, numbers and marks, each with the space before it. Every character is in some match."""
    number = r"\p{N}" if split_digits else r"\p{N}+"
    mark = rf"[^\s\p{{L}}\p{{M}}\p{{N}}{space}]" + ("+" if mark_run else "")
    return "|".join(
        [
            rf"{space}?[\p{{L}}\p{{M}}]+",
            rf"{space}?{number}",
            rf"{space}?{mark}",
            rf"{space}+(?={space})",  # all but the last of several spaces, which belongs to the next piece
            rf"[^\S{space}]+",
            space,
        ]
    )


@cache
def patterns() -> frozenset[str]:
    """The regular expressions that split a text in tokenizers trained here."""
    return frozenset(
        pattern
        for split in (False, True)
        for pattern in (
            _pattern(" ", split_digits=split, mark_run=True),
            _pattern(SPACE, split_digits=split, mark_run=False),
            _word_pattern(split_digits=split),
            _word_pattern(split_digits=split, times="{1,250}"),
        )
    )


def _splitter(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), "isolated")
