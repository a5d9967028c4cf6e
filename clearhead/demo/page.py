"""The demo's page: some phrases of every kind, and the user's own, with what each word attended to."""

import itertools
from collections.abc import Sequence

from clearhead.api import Model
from clearhead.data.phrases import KINDS, Phrase, PhraseCorpus
from clearhead.demo.figures import Figures, right_pairs
from clearhead.demo.talk import Own, language
from clearhead.explorer.alignment import PageFacts, alignment_page
from clearhead.explorer.pages import translated

N_SHOWN = 32
"""Phrases of the test on the page."""
FITS = 36
"""Characters of a source whose words stand side by side in the page's figure."""


def demo_page(model: Model, corpus: PhraseCorpus, outputs: Sequence[str], figures: Figures, own: Sequence[Own]) -> str:
    """The page as HTML: the user's own phrases first, then those of the test."""
    shown = chosen(corpus.test)
    references = [corpus.test[i] for i in shown]
    none = [None] * len(own)
    # The composer's alignment is of the reference: it holds for an output that equals it.
    right = [
        tuple(sorted(right_pairs(model.tokenizer, phrase))) if outputs[i] == phrase.target else None
        for i, phrase in zip(shown, references, strict=True)
    ]
    items = translated(
        model,
        [*(one.source for one in own), *(phrase.source for phrase in references)],
        [*(one.output for one in own), *(outputs[i] for i in shown)],
        references=[*none, *(phrase.target for phrase in references)],
        kinds=[*none, *(phrase.kind for phrase in references)],
        alignments=[*none, *right],
        unseen=[*(one.unseen for one in own), *([()] * len(shown))],
    )
    return alignment_page(items, facts(figures))


def chosen(phrases: Sequence[Phrase]) -> list[int]:
    """Some phrases of every kind: of those that fit the figure the ones whose words change places most."""
    each = N_SHOWN // len(KINDS)
    ranked = sorted(
        range(len(phrases)),
        key=lambda i: (len(phrases[i].source) > FITS, -crossings(phrases[i]), -len(phrases[i].spans)),
    )
    return [i for kind in KINDS for i in [j for j in ranked if phrases[j].kind == kind][:each]]


def crossings(phrase: Phrase) -> int:
    """Pairs of spans that stand in another order in the translation."""
    order = [span.target for span in sorted(phrase.spans, key=lambda span: span.source)]
    return sum(earlier > later for earlier, later in itertools.combinations(order, 2))


def facts(figures: Figures) -> PageFacts:
    """What the page says about the model."""
    return PageFacts(
        title=f"What your translator attended to: English to {language(figures.locale)}",
        subtitle=f"Trained on {figures.n_train:,} composed phrases; the phrases here were not among them",
        figures=(
            ("exactly right", f"{figures.exact_match:.1%}"),
            ("BLEU", f"{figures.bleu:.1f}"),
            ("attention on the right word", f"{figures.alignment:.1%}"),
            ("seconds", f"{figures.seconds:.0f}"),
            ("parameters", f"{figures.parameters:,}"),
        ),
        address=f"decoder.blocks.{figures.layer}.cross.weights",
        default_layer=figures.layer,
    )
