"""The figures of the demo, measured on sentences that its translator has not seen."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from clearhead.analysis.ablation import places, without
from clearhead.analysis.attention import aligned, cross_attention
from clearhead.analysis.passes import inference
from clearhead.api import Model
from clearhead.data.sentences import Sentence, SentenceCorpus, kinds
from clearhead.model import Tokens
from clearhead.tasks.text_scores import bleu
from clearhead.text.tokenizers import Tokenizer

IT = "it"
"""The kind of sentences in which *it* has one of two antecedents."""
FLIPPED = "bank", IT
"""The kinds of sentences for which a deciding head is looked for."""


@dataclass(frozen=True)
class SwitchedOff:
    """The head that decides an ambiguous word, switched off in one sentence."""

    at: str
    """The address of its output, such as `encoder.blocks.0.attn.z[h=2]`."""
    source: str
    target: str
    words: tuple[str, str]
    """The right translation of the ambiguous word, and the other."""
    before: tuple[float, ...]
    """Their probabilities."""
    after: tuple[float, ...]
    """Their probabilities without the head."""
    flipped: int
    """The sentences in which the other word is likelier without the head."""
    of: int


@dataclass(frozen=True)
class Figures:
    """The scores of the translator on the test sentences."""

    language: str
    seconds: float
    """From the start of the command."""
    exact_match: float
    """Share exactly right, 0..1."""
    ambiguous: float
    """Share of the ambiguous words other than *it* that are right, 0..1; NaN if the language shows none."""
    it: float
    """Share of *it* that stand for the right noun, 0..1."""
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


def measure(model: Model, corpus: SentenceCorpus, outputs: Sequence[str], *, layer: int, began: float) -> Figures:
    """Measures how many translations, ambiguous words and alignments are right, and BLEU."""
    pairs = list(zip(corpus.test, outputs, strict=True))
    lengths = [len(ids) for ids in model.tokenizer.encode_batch([one.target for one in corpus.train])]
    by_kind = {kind: [output == one.target for one, output in pairs if one.kind == kind] for kind in kinds()}
    decided = [(one.kind == IT, one.decides(output)) for one, output in pairs if one.choice]
    return Figures(
        language=corpus.language,
        seconds=time.perf_counter() - began,
        exact_match=_share([output == one.target for one, output in pairs]),
        ambiguous=_share([right for is_it, right in decided if not is_it]),
        it=_share([right for is_it, right in decided if is_it]),
        bleu=bleu(outputs, [[one.target] for one in corpus.test]).value,
        alignment=alignment_accuracy(model, corpus.test, layer),
        layer=layer,
        kinds={kind: _share(right) for kind, right in by_kind.items() if right},
        n_train=len(corpus.train),
        n_test=len(corpus.test),
        mean_target=sum(lengths) / len(lengths),
        parameters=model.summary().parameters,
    )


def _share(hits: Sequence[bool]) -> float:
    return sum(hits) / len(hits) if hits else float("nan")


def deciding_head(model: Model, sentences: Sequence[Sentence]) -> SwitchedOff:
    """Switches off one head after the other: the one without which most words flip, where it moves most.

    Every sentence has a `choice` of two words, and the decoder reads the reference as far as the first of them.
    """
    tokenizer = model.tokenizer
    words = [one.choice for one in sentences if one.choice]
    target = tokenizer.encode_batch([one.target for one in sentences])
    swapped = [re.sub(rf"\b{right}\b", wrong, one.target) for one, (right, wrong) in zip(sentences, words, strict=True)]
    other = tokenizer.encode_batch(swapped)
    at = [
        next(i for i, (a, b) in enumerate(zip(*pair, strict=False)) if a != b)
        for pair in zip(target, other, strict=True)
    ]
    ids = torch.tensor([[target[n][i], other[n][i]] for n, i in enumerate(at)])
    source = tokenizer.encode_batch([one.source for one in sentences], eos=True)
    inputs = Tokens.pad(source), Tokens.pad([[tokenizer.need("bos"), *row] for row in target])

    def probabilities(*sites: str) -> torch.Tensor:
        """n 2: of the right word and of the other."""
        with inference(model.network):
            logits = without(model.network, [model.here(tokens) for tokens in inputs], sites).cpu()
        return logits[range(len(at)), at].float().softmax(-1).gather(1, ids)

    before = probabilities()
    after = {site: probabilities(site) for place in places(model.network) if not place.is_ffn for site in place.sites}
    flips = {site: int((one[:, 1] > one[:, 0]).sum()) for site, one in after.items()}
    site = max(after, key=lambda site: (flips[site], float(after[site][:, 1].sum())))
    n = int((after[site][:, 1] - before[:, 1]).argmax())
    return SwitchedOff(
        site, sentences[n].source, sentences[n].target, words[n],
        tuple(before[n].tolist()), tuple(after[site][n].tolist()), flips[site], len(sentences),
    )  # fmt: skip


def alignment_accuracy(model: Model, sentences: Sequence[Sentence], layer: int) -> float:
    """Share of content tokens whose strongest cross-attention, mean over a layer's heads, is where the composer says.

    Content tokens are those of the reference inside one of the composer's spans. Any source token of the same span is
    right. The decoder reads the references, so that every sentence counts. NaN if no sentence has a span.
    """
    tokenizer = model.tokenizer
    looks = cross_attention(
        model.network,
        tokenizer.encode_batch([one.source for one in sentences], eos=True),
        tokenizer.encode_batch([one.target for one in sentences], eos=True),
        bos_id=tokenizer.need("bos"),
    )
    hits: list[bool] = []
    for sentence, look in zip(sentences, looks, strict=True):
        found, right = aligned(look, layer), right_pairs(tokenizer, sentence)
        hits += [(t, found[t]) in right for t in sorted({t for t, _ in right})]
    return sum(hits) / len(hits) if hits else float("nan")


def right_pairs(tokenizer: Tokenizer, sentence: Sentence) -> frozenset[tuple[int, int]]:
    """(target token, source token) pairs that belong to the same span of the composer's."""
    source, target = tokenizer.offsets(sentence.source), tokenizer.offsets(sentence.target)
    return frozenset(
        (t, s)
        for span in sentence.spans
        for t, at in enumerate(target)
        if overlap(at, span.target)
        for s, where in enumerate(source)
        if overlap(where, span.source)
    )


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Returns True if two character ranges overlap. An empty range, such as that of a lone space, overlaps none."""
    return max(a[0], b[0]) < min(a[1], b[1])
