"""How the classes of the reference library normalise, split and rejoin a text. Imports no torch.

`checkpoints/families/tokenizers.toml` names a function of this file for each class.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers
from tokenizers.decoders import Decoder
from tokenizers.normalizers import BertNormalizer as WordNormalizer
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import BertPreTokenizer as WordSplitter
from tokenizers.pre_tokenizers import PreTokenizer

from clearhead.text.formats.byte_pairs import SINGLE_DIGITS, splitter
from clearhead.text.formats.checked import flag
from clearhead.text.formats.classes import Settings, Vocabulary
from clearhead.text.formats.sentence_pieces import decoder
from clearhead.text.formats.special import content_of
from clearhead.text.schemes import SPACE

Pipeline: TypeAlias = tuple[Normalizer | None, PreTokenizer, Decoder]

WORD_END = "</w>"
ENDED_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
PUNCTUATION = r"[!-/:-@\[-`{-~]"


def _prefix(settings: Settings, default: bool) -> bool:
    return flag(settings, "add_prefix_space", default)


def _lowercase(settings: Settings, default: bool) -> list[Normalizer]:
    return [normalizers.Lowercase()] if flag(settings, "do_lower_case", default) else []


def _after_table(vocabulary: Vocabulary, *steps: Normalizer, first: bool = False) -> Normalizer | None:
    """The steps, and SentencePiece's table of characters after them, or `first`."""
    table = [normalizers.Precompiled(vocabulary.charsmap)] if vocabulary.charsmap else []
    both = [*table, *steps] if first else [*steps, *table]
    return normalizers.Sequence(both) if both else None


# --- words and letters ---


def words(_: Vocabulary, settings: Settings) -> Pipeline:
    """Words and punctuation marks (Devlin et al. 2019)."""
    accents = settings.get("strip_accents")
    normalizer = WordNormalizer(
        clean_text=True,
        handle_chinese_chars=flag(settings, "tokenize_chinese_chars", True),
        strip_accents=None if accents is None else flag(settings, "strip_accents", False),
        lowercase=flag(settings, "do_lower_case", True),
    )
    return normalizer, WordSplitter(), decoders.WordPiece(prefix="##")


def listed(vocabulary: Vocabulary, _: Settings) -> Pipeline:
    """Splits at the tokens of the list, the longest first, and the text between them at its spaces."""
    longest_first = sorted(filter(None, vocabulary.ids), key=len, reverse=True)
    splits = pre_tokenizers.Split(Regex("|".join(map(re.escape, longest_first))), "isolated")
    splitter = pre_tokenizers.Sequence([splits, pre_tokenizers.WhitespaceSplit()])
    return None, splitter, decoders.WordPiece(prefix=" ", cleanup=False)


def letters(vocabulary: Vocabulary, settings: Settings) -> Pipeline:
    """One token for each letter, and one between words. With do_lower_case the vocabulary has capital letters."""
    between = content_of(settings.get("word_delimiter_token", "|")) or "|"
    space = str(settings.get("replace_word_delimiter_char", " "))
    capitals = [letter for letter in vocabulary.ids if len(letter) == 1 and letter.lower() != letter]
    capitals = capitals if flag(settings, "do_lower_case", False) else []
    reads = [normalizers.Replace(capital.lower(), capital) for capital in capitals]
    writes = [decoders.Replace(capital, capital.lower()) for capital in capitals]
    return (
        normalizers.Sequence([*reads, normalizers.Replace(" ", between)]),
        pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"),
        decoders.Sequence([*writes, decoders.Replace(between, space), decoders.Fuse()]),
    )


def longer_tokens(vocabulary: Iterable[str]) -> list[AddedToken]:
    """The tokens of several letters, which are found in a text first and take the spaces around them."""
    return [AddedToken(token, lstrip=True, rstrip=True, normalized=False) for token in vocabulary if len(token) > 1]


# --- bytes ---


def words_2019(_: Vocabulary, settings: Settings) -> Pipeline:
    """The words of Radford et al. 2019."""
    return None, pre_tokenizers.ByteLevel(add_prefix_space=_prefix(settings, False)), decoders.ByteLevel()


def single_digits(_: Vocabulary, settings: Settings) -> Pipeline:
    """Composed characters, and each digit as a word of its own."""
    return normalizers.NFC(), splitter(SINGLE_DIGITS, prefix=_prefix(settings, False)), decoders.ByteLevel()


def composed(vocabulary: Vocabulary, settings: Settings) -> Pipeline:
    """As `words_2019`, with accents joined to their letters."""
    return normalizers.NFC(), *words_2019(vocabulary, settings)[1:]


def composed_digits(vocabulary: Vocabulary, settings: Settings) -> Pipeline:
    """As `composed`, with each digit as a token of its own."""
    normalizer, splits, joins = composed(vocabulary, settings)
    return normalizer, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), splits]), joins


def ended_words(*_: object) -> Pipeline:
    """Lowercase words whose last piece ends in </w> (Radford et al. 2021)."""
    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    splits = pre_tokenizers.Split(Regex(ENDED_WORDS), "removed", invert=True)
    marks = [decoders.Replace(Regex(f"{WORD_END}$"), ""), decoders.Replace(WORD_END, " ")]
    return (
        normalizers.Sequence([normalizers.NFC(), spaces, normalizers.Lowercase()]),
        pre_tokenizers.Sequence([splits, pre_tokenizers.ByteLevel(add_prefix_space=False)]),
        decoders.Sequence([decoders.ByteLevel(), *marks]),
    )


# --- pieces that hold their spaces ---


def unsplit(*_: object) -> Pipeline:
    """The whole text as one word: no space is left to split it at."""
    splits = pre_tokenizers.Split(" ", "merged_with_previous")
    return normalizers.Replace(" ", SPACE), splits, decoder(byte_fallback=True, prefix=False)


def whole(_: Vocabulary, settings: Settings) -> Pipeline:
    """The whole text as one word, with a space before it."""
    prefix = _prefix(settings, True)
    scheme = ("always" if flag(settings, "legacy", False) else "first") if prefix else "never"
    splits = pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme, split=False)
    return None, splits, decoder(byte_fallback=True, prefix=prefix)


def spaced(vocabulary: Vocabulary, settings: Settings, *before: Normalizer) -> Pipeline:
    """Splits at each white space, after the steps `before` and the table of characters."""
    # Here null means false, and only an absent field means true.
    scheme = "always" if _prefix(settings, "add_prefix_space" not in settings) else "never"
    splits = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme)]
    joins = decoders.Metaspace(SPACE, prepend_scheme=scheme)
    return _after_table(vocabulary, *before), pre_tokenizers.Sequence(splits), joins


def always_spaced(vocabulary: Vocabulary, _: Settings) -> Pipeline:
    """As `spaced`, with a space before every text."""
    return spaced(vocabulary, {})


def spaced_as_it_is(vocabulary: Vocabulary, _: Settings) -> Pipeline:
    """As `always_spaced`, without the table of characters."""
    return None, *spaced(vocabulary, {})[1:]


def without_accents(vocabulary: Vocabulary, settings: Settings) -> Pipeline:
    """As `spaced`, in lower case and without accents unless the settings say otherwise."""
    quotes = [normalizers.Replace(quotes, '"') for quotes in ("``", "''")]
    strips = [normalizers.NFKD(), normalizers.StripAccents()]
    keeps = flag(settings, "keep_accents", False)
    return spaced(vocabulary, settings, *quotes, *([] if keeps else strips), *_lowercase(settings, True))


def unpunctuated(vocabulary: Vocabulary, settings: Settings) -> Pipeline:
    """As `always_spaced`, without ASCII punctuation, and in lower case unless the settings say otherwise."""
    drops = [normalizers.Replace(Regex(PUNCTUATION), ""), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    return spaced(vocabulary, {}, *_lowercase(settings, True), *drops)


def collapsed(vocabulary: Vocabulary, _: Settings) -> Pipeline:
    """Several spaces become one, after the table of characters."""
    normalizer = _after_table(vocabulary, normalizers.Replace(Regex(" {2,}"), " "), first=True)
    return normalizer, pre_tokenizers.Metaspace(SPACE, prepend_scheme="always"), decoders.Metaspace(SPACE)


def collapsed_by_table(vocabulary: Vocabulary, settings: Settings) -> Pipeline:
    """As `collapsed`, but only if there is a table of characters."""
    normalizer, splits, joins = collapsed(vocabulary, settings)
    return normalizer if vocabulary.charsmap else None, splits, joins


def lines(vocabulary: Vocabulary, settings: Settings) -> Pipeline:
    """As `collapsed`; without a table of characters, a line end becomes a space."""
    normalizer, splits, joins = collapsed(vocabulary, settings)
    if not vocabulary.charsmap:
        normalizer = normalizers.Sequence([normalizers.Replace("\n", " "), normalizers.Replace(Regex(" {2,}"), " ")])
    return normalizer, splits, joins


def composed_spaces(_: Vocabulary, settings: Settings) -> Pipeline:
    """White space becomes one space, accents are joined to their letters, and punctuation is split off if asked for."""
    spaces = normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " ")
    steps = [*_lowercase(settings, False), spaces, normalizers.NFC(), normalizers.Strip(left=False, right=True)]
    scheme = "always" if _prefix(settings, "add_prefix_space" not in settings) else "first"
    punctuation = [pre_tokenizers.Punctuation(behavior="isolated")] if flag(settings, "split_by_punct", False) else []
    splits = pre_tokenizers.Sequence([*punctuation, pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme)])
    return normalizers.Sequence(steps), splits, decoders.Metaspace(SPACE, prepend_scheme=scheme)


LETTERS = letters.__name__
SPLITTING: Mapping[str, Callable[[Vocabulary, Settings], Pipeline]] = {
    function.__name__: function
    for function in (
        *(words, listed, letters, words_2019, single_digits, composed, composed_digits, ended_words),
        *(unsplit, whole, spaced, always_spaced, spaced_as_it_is, without_accents, unpunctuated),
        *(collapsed, collapsed_by_table, lines, composed_spaces),
    )
}
