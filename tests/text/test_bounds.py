"""Which regular expressions of tokenizers are searched in this process."""

import time

import pytest
from tokenizers import Regex, normalizers

from clearhead.text.formats.bounds import is_linear
from clearhead.text.formats.byte_pairs import PATTERNS

WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
PUBLISHED = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": rf"{WORDS}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}",
    "qwen3.5": rf"{WORDS}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{SPACES}",
    "tekken": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"
    rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}",
    "deepseek": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^" + "\r\n"
    r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[" + "\r\n"
    r"]*|\s*[" + "\r\n"
    r"]+|\s+(?!\S)|\s+",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "falcon": "[0-9][0-9][0-9]",
    "clip": r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    "kimi": r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}&&[^\p{Han}]]*[\p{Ll}&&[^\p{Han}]]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}&&[^\p{Han}]]+[\p{Ll}&&[^\p{Han}]]*|\s+",
    "sentencepiece": " {2,}",
    "our sentencepiece": "^ | $",
    "marian": "^ +|(?<! ) +$",
}
BOMBS = (
    *("(a|aa)+$", "(x+x+)+y", "a*b", "a*a*b", "(a{1000}){1000}", "(?~ab)", "a+?b", r"\s+$", "^ +| +$", "a*b|a|a+"),
    *("(a|aa)" * 20 + "b", "a?" * 20 + "b", "a*b|a{1,9}|a+", "(?x)(a|aa) #\n+b", r"(?<n>a|b\g<n>c|a\g<n>a)d"),
    *(r"(a*)*\1b", "(?:a|b)*c|(?:a|b)+", "a{2}+b|a+", "a**", "(?=a*)a", "[[a]*b", r"(?=(\d{3})+(?!\d))", "a" * 3000),
)


@pytest.mark.parametrize("pattern", [*PUBLISHED.values(), *PATTERNS], ids=[*PUBLISHED, *map(str, range(len(PATTERNS)))])
def test_a_published_expression_reads_each_character_a_few_times(pattern: str):
    assert is_linear(pattern)
    library = normalizers.Replace(Regex(pattern), "")
    for text in (
        " " * 100_000 + "x",
        "A" * 100_000 + "1",
        "\n" + " " * 100_000,
        "a" * 100_000,
        "1" * 100_000 + "!",
        "ab ." * 25_000,
    ):
        began = time.process_time()
        library.normalize_str(text)
        assert time.process_time() - began < 1, "a search from each character takes 17 seconds"


@pytest.mark.parametrize("pattern", BOMBS, ids=[pattern[:20] for pattern in BOMBS])
def test_an_expression_that_searches_again_is_known(pattern: str):
    assert not is_linear(pattern)
