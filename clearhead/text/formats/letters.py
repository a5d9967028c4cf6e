"""Splits a text into letters, which a model writes that labels the moments of sounds. Imports no torch."""

from collections.abc import Iterable, Mapping

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers

from clearhead.text.formats.checked import flag
from clearhead.text.formats.pipelines import Pipeline
from clearhead.text.formats.special import content_of

LETTERS = "letters"
"""The name of this splitting."""


def letters(vocabulary: Iterable[str], settings: Mapping[str, object]) -> Pipeline:
    """One token for each letter, and one between words. With do_lower_case the vocabulary has capital letters."""
    between = content_of(settings.get("word_delimiter_token", "|")) or "|"
    space = str(settings.get("replace_word_delimiter_char", " "))
    lowers = [(one.lower(), one) for one in vocabulary if len(one) == 1 and one.lower() != one]
    lowers = lowers if flag(settings, "do_lower_case", False) else []
    reads = [normalizers.Replace(lower, upper) for lower, upper in lowers]
    writes = [decoders.Replace(upper, lower) for lower, upper in lowers]
    steps = normalizers.Sequence([*reads, normalizers.Replace(" ", between)])
    splits = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    return steps, splits, decoders.Sequence([*writes, decoders.Replace(between, space), decoders.Fuse()])


def longer(vocabulary: Iterable[str]) -> list[AddedToken]:
    """The tokens of several letters, which are found in a text first and take the spaces around them."""
    return [AddedToken(one, lstrip=True, rstrip=True, normalized=False) for one in vocabulary if len(one) > 1]
