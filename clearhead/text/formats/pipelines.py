"""Ways in which tokenizers of merged bytes normalise, split and join a text. Imports no torch."""

from typing import TypeAlias

from tokenizers import decoders, normalizers, pre_tokenizers
from tokenizers.decoders import Decoder
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from clearhead.text.schemes import SPACE

Pipeline: TypeAlias = tuple[Normalizer | None, PreTokenizer, Decoder]


def composed(*, prefix: bool) -> Pipeline:
    """Accents joined to their letters, then GPT-2's words."""
    return normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=prefix), decoders.ByteLevel()


def composed_digits(*, prefix: bool) -> Pipeline:
    """The same, with each digit as a token of its own."""
    normalizer, splits, joins = composed(prefix=prefix)
    return normalizer, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), splits]), joins


def unsplit() -> Pipeline:
    """Treats the whole text as one piece: no space is left to split it at."""
    splits = pre_tokenizers.Split(" ", "merged_with_previous")
    joins = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return normalizers.Replace(" ", SPACE), splits, joins
