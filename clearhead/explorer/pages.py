"""Pages of a model: its translations with what each word attended to."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from clearhead.analysis.alignment import CrossAttention, cross_attention
from clearhead.api import Model
from clearhead.data.marks import target_marks
from clearhead.errors import UserError
from clearhead.explorer.alignment import PageFacts, Translated, alignment_page


def translation_page(model: Model, texts: Sequence[str], outputs: Sequence[Sequence[int]]) -> str:
    """The translations of these texts as one self-contained page; `outputs` are tokens as the model wrote them.

    Raises UserError where there is nothing to show: no text, or a model without cross-attention.
    """
    if not texts:
        raise UserError("page: expected at least one text to show, got none; give one")
    items = translated(
        model,
        texts,
        [model.tokenizer.decode(tokens) for tokens in outputs],
        targets=[[*tokens, *target_marks(model.tokenizer, model.generation).after] for tokens in outputs],
        unseen=[tuple(model.tokenizer.unknown(text)) for text in texts],
    )
    layer = len(items[0].cross) - 1
    facts = PageFacts(
        title="What each word was read from",
        subtitle="Cross-attention of your model on your sentences",
        figures=(("parameters", f"{model.summary().parameters:,}"),),
        address=f"decoder.blocks.{layer}.cross.weights",
        default_layer=layer,
    )
    return alignment_page(items, facts)


def translated(
    model: Model,
    texts: Sequence[str],
    outputs: Sequence[str],
    *,
    targets: Sequence[Sequence[int]] | None = None,
    references: Sequence[str | None] | None = None,
    kinds: Sequence[str | None] | None = None,
    alignments: Sequence[tuple[tuple[int, int], ...] | None] | None = None,
    unseen: Sequence[tuple[str, ...]] | None = None,
) -> list[Translated]:
    """Texts and their translations with the attention of every step, as the page wants them.

    `targets` are the outputs' tokens with their end token; by default as the tokenizer cuts the outputs.
    """
    if not model.is_encoder_decoder:
        raise UserError("page: expected an encoder-decoder, whose cross-attention it shows, got a single stack")
    tokenizer, none = model.tokenizer, [None] * len(texts)
    marks = target_marks(tokenizer, model.generation)
    sources = model.reader.ids(texts)
    targets = targets or [marks.around(ids) for ids in tokenizer.encode_batch(outputs, target=True)]
    looks = cross_attention(model.network, sources, targets, bos_id=model.reader.start(model.generation))
    rows = zip(
        sources,
        targets,
        looks,
        texts,
        outputs,
        references or none,
        kinds or none,
        alignments or none,
        unseen or [()] * len(texts),
        strict=True,
    )
    return [_translated(model, *row) for row in rows]


def save_page(page: str, path: Path) -> None:
    """Write a page; at any moment the file is the old or the new one. Raises UserError, one line, where it cannot."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(page, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise UserError(f"{path}: expected to write a page, got {error.strerror}; try another folder") from None


def _translated(
    model: Model,
    source: Sequence[int],
    target: Sequence[int],
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
