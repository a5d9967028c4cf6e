"""The tokenizers that a recipe can train, as configurations. Imports no torch."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from clearhead.config import Config

N_SPECIAL = 4
"""<pad>, <unk>, <bos>, <eos> hold the first ids of every tokenizer trained here."""

Normalization = Literal["nfc", "nfkc"]


class ByteBPE(Config):
    """Byte-pair encoding over bytes: nothing is unknown, decoding is exact (Radford et al. 2019, 2.2)."""

    kind: Literal["byte_bpe"] = "byte_bpe"
    vocab_size: Annotated[int, Field(ge=256 + N_SPECIAL)] = 8_000
    min_frequency: PositiveInt = 2
    """A pair seen less often is never merged."""
    lowercase: bool = False
    split_digits: bool = False
    """Every digit is a token of its own."""
    normalization: Normalization | None = None


class BPE(Config):
    """Byte-pair encoding over characters (Sennrich et al. 2016, 3.2); a character never seen is <unk>."""

    kind: Literal["bpe"] = "bpe"
    vocab_size: Annotated[int, Field(gt=N_SPECIAL)] = 8_000
    min_frequency: PositiveInt = 2
    lowercase: bool = False
    split_digits: bool = False
    normalization: Normalization | None = "nfc"


class WordPiece(Config):
    """Longest match first, ## before a word's later pieces (Devlin et al. 2018); spacing is lost."""

    kind: Literal["wordpiece"] = "wordpiece"
    vocab_size: Annotated[int, Field(gt=N_SPECIAL)] = 8_000
    min_frequency: PositiveInt = 2
    lowercase: bool = False
    split_digits: bool = False
    normalization: Normalization | None = "nfc"
    bytes: bool = False
    """Pieces are of bytes, 516 or more: nothing is unknown. A word is read in parts of 250 characters."""


class Unigram(Config):
    """The most probable segmentation under a unigram model of pieces (Kudo 2018, 3.2)."""

    kind: Literal["unigram"] = "unigram"
    vocab_size: Annotated[int, Field(gt=N_SPECIAL)] = 8_000
    lowercase: bool = False
    split_digits: bool = False
    normalization: Normalization | None = "nfkc"


class Words(Config):
    """Whole words and single punctuation marks, each with the space before it; a word never seen is <unk>."""

    kind: Literal["words"] = "words"
    vocab_size: Annotated[int, Field(gt=N_SPECIAL)] = 10_000
    min_frequency: PositiveInt = 1
    """A word seen less often is <unk>."""
    lowercase: bool = False
    split_digits: bool = False
    normalization: Normalization | None = "nfc"


class Characters(Config):
    """One token a character, line ends and spaces included: decoding is exact."""

    kind: Literal["characters"] = "characters"
    vocab_size: Annotated[int, Field(gt=N_SPECIAL)] = 10_000
    min_frequency: PositiveInt = 1
    lowercase: bool = False
    normalization: Normalization | None = None


TokenizerConfig = Annotated[ByteBPE | BPE | WordPiece | Unigram | Words | Characters, Field(discriminator="kind")]
