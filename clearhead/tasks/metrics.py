"""Scores: BLEU and chrF as sacreBLEU computes them, exact match, perplexity, bits per byte."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Literal

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from clearhead.errors import UserError
from clearhead.tasks.resampling import ScoredRows
from clearhead.tasks.scripts import bleu_tokenizer

Tokenize = Literal["auto", "13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab", "flores101", "flores200"]
"""The tokenizers of BLEU, by sacreBLEU's names; auto chooses by the script of the references."""
ORDER = 4
"""Words of the longest n-grams of BLEU."""


@dataclass(frozen=True)
class Score:
    """One figure."""

    name: str
    value: float
    signature: str = ""
    """How it was computed, where that differs from one paper to another."""
    is_smoothed: bool = False
    """Whether smoothing alone keeps it above 0, as that of a BLEU without one matching 4-gram: it says little."""
    unit: str = ""
    is_bounded: bool = False
    """Whether its interval is shown."""
    rows: ScoredRows | None = field(default=None, compare=False, repr=False)
    """What each example adds to it, from which intervals and comparisons with another model come."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where 95% of bootstrap resamples of the rows fall, if that is shown. Takes a while when it is first asked."""
        return self.rows.interval if self.is_bounded and self.rows is not None else None

    def __str__(self) -> str:
        return f"{self.name} = {self.value:.2f}" + (f" ({self.signature})" if self.signature else "")


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


def bleu_metric(tokenize: Tokenize, *, lowercase: bool = False) -> BLEU:
    """sacreBLEU's metric with this tokenizer; raises UserError if the tokenizer's package is not installed."""
    try:
        return BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    except (ImportError, RuntimeError, OSError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        remedy = next((line.strip() for line in lines if "pip install" in line), "tokenize=auto")
        raise UserError(f"tokenize={tokenize}: expected sacreBLEU to have it, got {lines[0]!r}; try {remedy}") from None


def chrf(outputs: Sequence[str], references: Sequence[Sequence[str]], *, word_order: int = 0) -> Score:
    """Corpus chrF2, 0..100: F-score of character n-grams up to 6; word_order=2 is chrF2++ (Popović 2015)."""
    metric = CHRF(word_order=word_order)
    streams = _streams(outputs, references)
    rows = _rows(metric, outputs, streams)
    value = 100.0 if _is_empty(outputs, streams) else rows.of(np.arange(len(rows)))
    return Score("chrf" + "+" * word_order, value, str(metric.get_signature()), rows=rows)


def exact_match(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Share of outputs, 0..1, that equal one of their references, ignoring white space at both ends."""
    _check(outputs, references)
    hits = [o.strip() in {r.strip() for r in rs} for o, rs in zip(outputs, references, strict=True)]
    return Score("exact_match", sum(hits) / len(outputs), unit="0 to 1", rows=ScoredRows(mean, (np.array(hits),)))


def perplexity(nats: float, n_tokens: int) -> Score:
    """exp(nats / n_tokens): the mean uncertainty, as a number of equally likely choices."""
    if n_tokens <= 0:
        raise UserError(f"perplexity: expected at least one token, got {n_tokens}")
    mean = nats / n_tokens
    return Score("perplexity", math.exp(mean) if mean < math.log(1e300) else math.inf)


def bits_per_byte(nats: float, n_bytes: float) -> Score:
    """nats / (ln 2 * n_bytes): comparable between tokenizers; the bytes are those of the text in UTF-8."""
    if n_bytes <= 0:
        raise UserError(f"bits per byte: expected at least one byte, got {n_bytes}")
    return Score("bits_per_byte", nats / (math.log(2) * n_bytes))


def of_each(score: Score) -> list[float]:
    """The score of each example alone. Raises UserError if it is not one of examples."""
    if score.rows is None:
        raise UserError(f"{score.name}: expected a score of examples, got one of the whole data")
    return [score.rows.of(np.array([i])) for i in range(len(score.rows))]


def mean(values: np.ndarray) -> float:
    """The mean; n."""
    return float(values.mean())


def ratio(parts: np.ndarray, wholes: np.ndarray) -> float:
    """The sum of the parts divided by the sum of the wholes; n and n."""
    return float(parts.sum() / wholes.sum())


def _rows(metric: BLEU | CHRF, outputs: Sequence[str], streams: list[list[str]]) -> ScoredRows:
    """What each sentence adds: the statistics that sacreBLEU's own paired tests resample."""
    statistics = metric._extract_corpus_statistics(outputs, streams)
    return ScoredRows(partial(_of_sums, metric), (np.array(statistics),))


def _of_sums(metric: BLEU | CHRF, statistics: np.ndarray) -> float:
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


def _order(metric: BLEU, references: Sequence[Sequence[str]]) -> int:
    """Words of the longest n-grams, up to 4, that every perfect output contains."""
    longest = 0
    for texts in references:
        longest = max(longest, min(len(metric.tokenizer(text.rstrip()).split()) for text in texts))
        if longest >= ORDER:
            return ORDER
    return longest


def _is_empty(outputs: Sequence[str], streams: list[list[str]]) -> bool:
    """Whether both outputs and references are empty, which scores as perfect."""
    return not any(text.strip() for text in chain(outputs, *streams))


def moses_bleu(outputs: Sequence[str], references: Sequence[str], language: str) -> Score:
    """BLEU of lowercased, Moses-normalised and -tokenised text, as papers on small corpora report it."""
    try:
        from sacremoses import MosesPunctNormalizer, MosesTokenizer
    except ImportError:
        raise UserError("moses: expected the package sacremoses, got none; pip install 'clearhead[eval]'") from None
    normalizer, tokenizer = MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)

    def tokens(text: str) -> str:
        return str(tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True, escape=False))

    score = bleu([tokens(text) for text in outputs], [[tokens(text)] for text in references], tokenize="none")
    return Score("bleu_moses_lower", score.value, f"{score.signature}|moses:{language}|lowercased")
