"""How the outputs of a translator are scored, as data. Imports no torch."""

from typing import Literal

from clearhead.config import Config

Tokenize = Literal["auto", "13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab", "flores101", "flores200"]


class EvaluationConfig(Config):
    """The settings of the scores that choose the best checkpoint."""

    tokenize: Tokenize = "auto"
    """The tokenizer of BLEU, by sacreBLEU's name; auto: by the script of the reference translations.

    auto takes zh for Chinese, char for other scripts without spaces (Japanese, Thai, Lao, Khmer, Burmese), else 13a."""
