"""The figures of the demo, measured on phrases that its translator has not seen."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from clearhead.analysis.attention import aligned, cross_attention
from clearhead.api import Model
from clearhead.data.phrases import KINDS, Phrase, PhraseCorpus
from clearhead.tasks.text_scores import bleu
from clearhead.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Figures:
    """The scores of the translator on the test phrases."""

    locale: str
    seconds: float
    """From the start of the command."""
    exact_match: float
    """Share exactly right, 0..1."""
    bleu: float
    """0..100"""
    alignment: float
    """Share of content tokens whose strongest attention is on the right word, 0..1."""
    layer: int
    """The decoder layer, from 0, whose attention `alignment` measures."""
    kinds: dict[str, float]
    """Share exactly right, by kind."""
    n_train: int
    n_test: int
    mean_target: float
    """Tokens of a training target."""
    parameters: int


def measure(model: Model, corpus: PhraseCorpus, outputs: Sequence[str], *, layer: int, began: float) -> Figures:
    """Measures the share of exactly right translations by kind, BLEU, and how often attention is on the right word."""
    right: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    for phrase, output in zip(corpus.test, outputs, strict=True):
        right[phrase.kind].append(output == phrase.target)
    lengths = [len(ids) for ids in model.tokenizer.encode_batch([phrase.target for phrase in corpus.train])]
    alignment = alignment_accuracy(model, corpus.test, layer)
    return Figures(
        locale=corpus.locale,
        seconds=time.perf_counter() - began,
        exact_match=sum(map(sum, right.values())) / len(corpus.test),
        bleu=bleu(outputs, [[phrase.target] for phrase in corpus.test]).value,
        alignment=alignment,
        layer=layer,
        kinds={kind: sum(hits) / len(hits) for kind, hits in right.items() if hits},
        n_train=len(corpus.train),
        n_test=len(corpus.test),
        mean_target=sum(lengths) / len(lengths),
        parameters=model.summary().parameters,
    )


def alignment_accuracy(model: Model, phrases: Sequence[Phrase], layer: int) -> float:
    """Share of content tokens whose strongest cross-attention, mean over a layer's heads, is where the composer says.

    Content tokens are those of the reference inside one of the composer's spans. Any source token of the same span is
    right. The decoder reads the references, so that every phrase counts. NaN if no phrase has a span.
    """
    tokenizer = model.tokenizer
    looks = cross_attention(
        model.network,
        tokenizer.encode_batch([phrase.source for phrase in phrases], eos=True),
        tokenizer.encode_batch([phrase.target for phrase in phrases], eos=True),
        bos_id=tokenizer.need("bos"),
    )
    hits: list[bool] = []
    for phrase, look in zip(phrases, looks, strict=True):
        found, right = aligned(look, layer), right_pairs(tokenizer, phrase)
        hits += [(t, found[t]) in right for t in sorted({t for t, _ in right})]
    return sum(hits) / len(hits) if hits else float("nan")


def right_pairs(tokenizer: Tokenizer, phrase: Phrase) -> frozenset[tuple[int, int]]:
    """(target token, source token) pairs that belong to the same span of the composer's."""
    source, target = tokenizer.offsets(phrase.source), tokenizer.offsets(phrase.target)
    return frozenset(
        (t, s)
        for span in phrase.spans
        for t, at in enumerate(target)
        if overlap(at, span.target)
        for s, where in enumerate(source)
        if overlap(where, span.source)
    )


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Returns True if two character ranges overlap. An empty range, such as that of a lone space, overlaps none."""
    return max(a[0], b[0]) < min(a[1], b[1])
