"""The labels of texts and images, in batches: those of the model, or labels that a text entails."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.api.reader import Input
from clearhead.config import ClassificationHead
from clearhead.data.labelled_ids import Inputs
from clearhead.data.marks import start_again
from clearhead.errors import UserError
from clearhead.model.heads import scores
from clearhead.model.mode import Evaluating
from clearhead.tasks.answers import logits_of, names_in

if TYPE_CHECKING:
    from clearhead.api.model import Model

TEMPLATE = "This example is {}."
"""The hypothesis about a label, as the pipeline of the reference library writes it."""
IMAGES = 32
"""Images of one batch."""

Rows = list[list[tuple[str, float]]]


def head_of(model: "Model") -> ClassificationHead:
    """The model's classification head. Raises UserError for any other."""
    head = model.config.head
    if not isinstance(head, ClassificationHead):
        raise UserError(f"classify: expected a classification head, got {head.kind}; try load(…, head=…)")
    return head


def classified(model: "Model", inputs: Sequence[Input]) -> Rows:
    """The scores of the model's own labels for each text or image. Long texts are cut."""
    head = head_of(model)
    found = _of_images(model, inputs) if model.reader.reads_images else logits(model, [(_text(x),) for x in inputs])
    return [list(zip(names_in(head), row, strict=True)) for row in scores(head, found).tolist()]


def entailed(model: "Model", texts: Sequence[Input], labels: Sequence[str], *, template: str, several: bool) -> Rows:
    """The score of each label for each text, by a model of natural language inference   (Yin et al. 2019)

    Labels exclude each other: softmax over the labels of the logit of entailment. With `several`, or a single label:
    softmax over contradiction and entailment, for each label alone.
    """
    if isinstance(labels, str) or not all(label.strip() for label in labels) or len({*labels}) < len(labels):
        raise UserError(f"labels: expected a list of different labels, got {labels!r}; try ['sport', 'politics']")
    if "{}" not in template:
        raise UserError(f"template: expected {{}} in place of the label, got {template!r}; try {TEMPLATE!r}")
    entailment, contradiction = _relations(head_of(model))
    pairs = [(_text(text), template.replace("{}", label)) for text in texts for label in labels]
    found = logits(model, pairs).view(len(texts), len(labels), -1)
    if several or len(labels) == 1:
        shares = found[..., [contradiction, entailment]].softmax(-1)[..., 1]
    else:
        shares = found[..., entailment].softmax(-1)
    return [list(zip(labels, row, strict=True)) for row in shares.tolist()]


def _relations(head: ClassificationHead) -> tuple[int, int]:
    """The numbers of entailment and of contradiction among the labels, of which the model may have no neutral one."""
    names = [name.lower() for name in names_in(head)]
    entailment = next((i for i, name in enumerate(names) if name.startswith("entail")), None)
    if entailment is None or len(names) < 2:
        raise UserError(
            f"labels: expected a model with a label entailment, got one with {', '.join(names_in(head))};"
            " try a model of natural language inference, or leave them out"
        )
    opposite = next((i for i, name in enumerate(names) if name.startswith(("contra", "not_entail"))), None)
    return entailment, opposite if opposite is not None else (len(names) - 1 if entailment == 0 else 0)


def logits(model: "Model", rows: Sequence[tuple[str, ...]]) -> Tensor:
    """n v: the logits of texts, or of pairs, in batches."""
    reader, limit = model.reader, model.config.first.max_length or 1 << 30
    if rows and len(rows[0]) == 2:
        inputs = Inputs.of(rows, reader.words, limit)
    else:
        inputs = Inputs(_cut(model, [text for (text,) in rows], limit), None, [])
    ids = [reader.known(one) for one in inputs.ids]
    if not all(ids):
        raise UserError("text: expected at least one token, got an empty text; leave it out")
    start = start_again(reader.words, model.generation, ids) if model.is_encoder_decoder else None
    return logits_of(model.network, inputs, reader.words, start=start)


def _cut(model: "Model", texts: Sequence[str], limit: int) -> list[list[int]]:
    """The ids of each text with its marks, cut to a length."""
    reader = model.reader
    after = reader.marks().after
    found = reader.ids(texts)
    found = [ids if len(ids) <= limit else [*ids[: limit - len(after)], *after] for ids in found]
    if model.is_encoder_decoder:
        return found
    return [reader.until_padding(ids, model.generation.pad_id) for ids in found]


def _of_images(model: "Model", images: Sequence[Input]) -> Tensor:
    """n v: the logits of images."""
    found = [torch.empty(0, head_of(model).n_labels)]
    with Evaluating(model.network), torch.inference_mode():
        for at in range(0, len(images), IMAGES):
            batch = model.here(model.reader.batch(images[at : at + IMAGES], pad_id=None))
            found.append(model.network(batch).float().cpu())
    return torch.cat(found)


def _text(text: Input) -> str:
    if not isinstance(text, str):
        raise UserError(f"text: expected a string, got {type(text).__name__}")
    return text
