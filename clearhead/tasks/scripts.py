"""The choice of a sacreBLEU tokenizer by the script of a text."""

import re
from collections.abc import Iterable
from typing import Literal

_HAN = "\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fbb\uf900-\ufad9"
"""The characters that `zh` splits; it takes those of the supplementary planes for words."""
_OTHERS = (
    "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001aff0-\U0001b16f"  # Kana
    "\u9fbc-\u9fff\U00020000-\U0003ffff"  # newer and rarer Han
    "\u3105-\u312f\u31a0-\u31bf"  # Bopomofo
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e81-\u0ece\u0edc-\u0edf"  # Lao
    "\u0f40-\u0fbc"  # Tibetan
    "\u1000-\u103f\u104c-\u108f\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"  # Burmese and its relatives
    "\u1780-\u17d3\u17d7\u17dc-\u17dd"  # Khmer
    "\u1950-\u1974\u1980-\u19c9\u1a20-\u1a7c\uaa80-\uaadf"  # Tai Le, New Tai Lue, Tai Tham, Tai Viet
    "\u1b05-\u1b4b\ua980-\ua9c0"  # Balinese, Javanese
)
_han, _unspaced = re.compile(f"[{_HAN}]"), re.compile(f"[{_HAN}{_OTHERS}]")
MOSTLY = 0.9
"""Share of Han above which unspaced text is Chinese; about half of Japanese text is kana."""


def bleu_tokenizer(texts: Iterable[str]) -> Literal["13a", "zh", "char"]:
    """Returns the tokenizer of BLEU for these texts, which are the references of one data set.

    A character of a script without spaces counts as much as a word of another script, because a word is one token
    there. Texts in which words are the majority, and those without any letter, take 13a.
    """
    n_han = n_unspaced = n_words = 0
    for text in texts:
        n_han += len(_han.findall(text))
        spaced, n = _unspaced.subn(" ", text)
        n_unspaced += n
        n_words += sum(any(map(str.isalpha, word)) for word in spaced.split())
    if n_unspaced <= n_words:
        return "13a"
    return "zh" if n_han >= MOSTLY * n_unspaced else "char"
