"""Pages of a model: its translations with what each word attended to."""

import itertools
from collections.abc import Sequence

import numpy as np

from clearhead.analysis.alignment import CrossAttention, cross_attention
from clearhead.api import Model
from clearhead.explorer.alignment import PageFacts, Translated, alignment_page
from clearhead.recipe_generation import GenerationConfig


def translation_page(model: Model, texts: Sequence[str], config: GenerationConfig) -> str:
    """The translations of these texts as one self-contained page."""
    outputs = model.translate(texts, config)
    layer = len(model.network.decoder.blocks) - 1 if model.network.decoder else 0
    facts = PageFacts(
        title="What each word was read from",
        subtitle="Cross-attention of your model on your sentences",
        figures=(("parameters", f"{model.summary().parameters:,}"),),
        address=f"decoder.blocks.{layer}.cross.weights",
        default_layer=layer,
    )
    return alignment_page(translated(model, texts, outputs), facts)


def translated(
    model: Model,
    texts: Sequence[str],
    outputs: Sequence[str],
    *,
    references: Sequence[str | None] | None = None,
    kinds: Sequence[str | None] | None = None,
    alignments: Sequence[tuple[tuple[int, int], ...] | None] | None = None,
    unseen: Sequence[tuple[str, ...]] | None = None,
) -> list[Translated]:
    """Texts and their translations with the attention of every step, as the page wants them."""
    tokenizer = model.tokenizer
    source = tokenizer.encode_batch(texts, eos=True)
    target = tokenizer.encode_batch(outputs, eos=True)
    looks = cross_attention(model.network, source, target, bos_id=tokenizer.need("bos"))
    rows = zip(
        source,
        target,
        looks,
        texts,
        outputs,
        references or itertools.repeat(None),
        kinds or itertools.repeat(None),
        alignments or itertools.repeat(None),
        unseen or itertools.repeat(()),
        strict=False,
    )
    return [_translated(model, *row) for row in rows]


def _translated(
    model: Model,
    source: list[int],
    target: list[int],
    look: CrossAttention,
    text: str,
    output: str,
    reference: str | None,
    kind: str | None,
    alignment: tuple[tuple[int, int], ...] | None,
    unseen: tuple[str, ...],
) -> Translated:
    return Translated(
        source_tokens=tuple(model.tokenizer.tokens(source)),
        target_tokens=tuple(model.tokenizer.tokens(target)),
        source_text=text,
        output_text=output,
        reference=reference,
        kind=kind,
        cross=look.weights.numpy().astype(np.float32),
        probabilities=tuple(look.probabilities.tolist()),
        alignment=alignment,
        unseen=unseen,
    )
