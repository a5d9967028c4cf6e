"""Scores of written texts: BLEU and chrF as sacreBLEU computes them, ROUGE, exact match."""

import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Literal

import numpy as np

from clearhead.errors import UserError, require
from clearhead.tasks.scores import Score, ScoredRows, mean, scored

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU, CHRF

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


Tokenize = Literal["auto", "13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab", "flores101", "flores200"]
"""The tokenizers of BLEU, by sacreBLEU's names; auto chooses by the script of the references."""
ORDER = 4
"""Words of the longest n-grams of BLEU."""


def bleu(
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: Tokenize = "auto",
    lowercase: bool = False,
) -> Score:
    """Corpus BLEU, 0..100 (Papineni et al. 2002; Post 2018).

    `references[i]` are those of `outputs[i]`, one or more. `tokenize` names sacreBLEU's tokenizer: "auto" chooses by
    the script of the references alone, "none" is for texts already tokenised. The score is called `bleu` with 13a, and
    `bleu_zh`, `bleu_char`, ... with another tokenizer. References that are all shorter than four words are compared by
    shorter n-grams ("eff:yes" in the signature), so that a perfect output always has 100.

    Raises UserError for a tokenizer whose package is not installed.
    """
    streams = _streams(outputs, references)
    if tokenize == "auto":
        tokenize = bleu_tokenizer(chain.from_iterable(references))
    metric = bleu_metric(tokenize, lowercase=lowercase)
    order = _order(metric, references)
    metric.effective_order = order < ORDER
    rows = _rows(metric, outputs, streams)
    found = metric._compute_score_from_stats(rows.columns[0].sum(0))
    value = 100.0 if _is_empty(outputs, streams) else found.score
    unmatched = any(total and not hits for hits, total in zip(found.counts[:order], found.totals, strict=False))
    is_smoothed = value > 0 and unmatched
    return Score(bleu_name(tokenize), value, str(metric.get_signature()), is_smoothed=is_smoothed, rows=rows)


def bleu_name(tokenize: Tokenize) -> str:
    """The name of the BLEU score with this tokenizer."""
    return "bleu" if tokenize == "13a" else f"bleu_{tokenize}"


def bleu_metric(tokenize: Tokenize, *, lowercase: bool = False) -> "BLEU":
    """sacreBLEU's metric with this tokenizer; raises UserError if its package or the tokenizer's is not installed."""
    require("bleu", "sacrebleu", "score")
    from sacrebleu.metrics import BLEU

    try:
        return BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    except (ImportError, RuntimeError, OSError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        remedy = next((line.strip() for line in lines if "pip install" in line), "tokenize=auto")
        raise UserError(f"tokenize={tokenize}: expected sacreBLEU to have it, got {lines[0]!r}; try {remedy}") from None


def chrf(outputs: Sequence[str], references: Sequence[Sequence[str]], *, word_order: int = 0) -> Score:
    """Corpus chrF2, 0..100: F-score of character n-grams up to 6; word_order=2 is chrF2++ (Popović 2015)."""
    require("chrf", "sacrebleu", "score")
    from sacrebleu.metrics import CHRF

    metric = CHRF(word_order=word_order)
    streams = _streams(outputs, references)
    rows = _rows(metric, outputs, streams)
    value = 100.0 if _is_empty(outputs, streams) else rows.of(np.arange(len(rows)))
    return Score("chrf" + "+" * word_order, value, str(metric.get_signature()), rows=rows)


def exact_match(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Share of outputs, 0..1, that equal one of their references, ignoring white space at both ends."""
    _check(outputs, references)
    hits = [o.strip() in {r.strip() for r in rs} for o, rs in zip(outputs, references, strict=True)]
    rows = ScoredRows(mean, (np.array(hits),), is_share=True)
    return Score("exact_match", sum(hits) / len(outputs), unit="0 to 1", rows=rows)


def _rows(metric: "BLEU | CHRF", outputs: Sequence[str], streams: list[list[str]]) -> ScoredRows:
    """What each sentence adds: the statistics that sacreBLEU's own paired tests resample."""
    statistics = metric._extract_corpus_statistics(outputs, streams)
    return ScoredRows(partial(_of_sums, metric), (np.array(statistics),))


def _of_sums(metric: "BLEU | CHRF", statistics: np.ndarray) -> float:
    return float(metric._compute_score_from_stats(statistics.sum(0)).score)


def _check(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if len(outputs) != len(references):
        raise UserError(f"expected references for each output, got {len(references)} for {len(outputs)}")
    if not outputs:
        raise UserError("expected at least one output to score, got none")
    for i, texts in enumerate(references):
        if isinstance(texts, str) or not texts:
            raise UserError(f"references of output {i + 1}: expected a list of texts, got {texts!r}")


def _streams(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> list[list[str]]:
    """One list of references for each reference number; an output with too few repeats its last one.

    A repeated reference changes neither BLEU (clipped by the maximum) nor chrF (the best one counts).
    """
    _check(outputs, references)
    most = max(map(len, references))
    return [[texts[min(k, len(texts) - 1)] for texts in references] for k in range(most)]


def _order(metric: "BLEU", references: Sequence[Sequence[str]]) -> int:
    """Words of the longest n-grams, up to 4, that every perfect output contains."""
    longest = 0
    for texts in references:
        longest = max(longest, min(len(metric.tokenizer(text.rstrip()).split()) for text in texts))
        if longest >= ORDER:
            return ORDER
    return longest


def _is_empty(outputs: Sequence[str], streams: list[list[str]]) -> bool:
    """Returns True if both outputs and references are empty, which scores as perfect."""
    return not any(text.strip() for text in chain(outputs, *streams))


def moses_bleu(outputs: Sequence[str], references: Sequence[str], language: str) -> Score:
    """BLEU of lowercased, Moses-normalised and -tokenised text, as papers on small corpora report it."""
    require("moses", "sacremoses", "eval")
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)

    def tokens(text: str) -> str:
        return str(tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True, escape=False))

    score = bleu([tokens(text) for text in outputs], [[tokens(text)] for text in references], tokenize="none")
    return Score("bleu_moses_lower", score.value, f"{score.signature}|moses:{language}|lowercased")


Metric = Literal["rouge", "bleu", "chrf", "exact_match"]
MAIN: dict[Metric, str] = {"rouge": "rougeL", "bleu": "bleu", "chrf": "chrf", "exact_match": "exact_match"}
"""The score of each metric that chooses the best checkpoint."""


def written_scores(metric: Metric, outputs: Sequence[str], references: Sequence[str]) -> tuple[Score, ...]:
    """The scores of a metric, the main one first."""
    several = [[text] for text in references]
    match metric:
        case "rouge":
            return rouge(outputs, references)
        case "bleu":
            return bleu(outputs, several, tokenize="13a"), chrf(outputs, several)
        case "chrf":
            return (chrf(outputs, several),)
        case "exact_match":
            return (exact_match(outputs, several),)


def rouge(outputs: Sequence[str], references: Sequence[str]) -> tuple[Score, ...]:
    """ROUGE-L, ROUGE-1 and ROUGE-2, 0..100: the mean F1 of longest common subsequences, words and pairs (Lin 2004).

    As `rouge-score` computes them, with Porter's stemmer, and with 95% bootstrap intervals. Raises UserError without
    that package, and for texts in a script of which it drops every letter.
    """
    require("metric=rouge", "rouge_score", "eval", "rouge-score")
    from rouge_score import rouge_scorer

    if not any(char.isascii() and char.isalnum() for text in references for char in text):
        raise UserError('metric=rouge: expected references in Latin letters, got others; try evaluation.metric="chrf"')
    names = ["rougeL", "rouge1", "rouge2"]
    scorer = rouge_scorer.RougeScorer(names, use_stemmer=True)
    rows = [scorer.score(reference, output) for output, reference in zip(outputs, references, strict=True)]

    values = {name: np.array([100 * row[name].fmeasure for row in rows]) for name in names}
    return tuple(scored(name, mean, values[name], unit="mean F1, 0 to 100") for name in names)
