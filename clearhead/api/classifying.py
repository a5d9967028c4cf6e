"""The labels of texts and images, in batches: those of the model, or labels that a text entails."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.api.predicting import lines_of
from clearhead.api.reader import Input
from clearhead.brief import brief
from clearhead.config import ClassificationHead
from clearhead.errors import UserError
from clearhead.model.heads import scores
from clearhead.model.mode import Evaluating
from clearhead.tasks.classification.task import Classification, labelled, names_in, read_logits
from clearhead.tasks.task import NOTHING, Prediction, texts_of

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
    """The scores of the model's own labels for each text or image, none for a blank text. Long texts are cut."""
    head = head_of(model)
    pictures = model.reader.reads_images
    rows = inputs if pictures else lines_of(model, Classification, [_text(x) for x in inputs])
    is_blank = [isinstance(row, str) and not row.strip() for row in rows]
    known = [row for row, blank in zip(rows, is_blank, strict=True) if not blank]
    texts = [texts_of(row) for row in known if isinstance(row, str)]
    logits = _of_images(model, known) if pictures else read_logits(model, texts)
    found = iter([list(zip(names_in(head), row, strict=True)) for row in scores(head, logits).tolist()])
    return [[] if blank else next(found) for blank in is_blank]


@dataclass(frozen=True)
class ZeroShot:
    """Labels that a model was not trained for, and the hypothesis about each   (Yin et al. 2019)"""

    labels: Sequence[str]
    template: str | None = None
    """The sentence about a label, with {} in its place; by default that of the model's kind."""
    several: bool = False
    """Whether each label is judged alone, because several may hold."""

    def sentences(self, usual: str) -> list[str]:
        """The template, or the usual one, with each label in its place."""
        return [(self.template or usual).replace("{}", label) for label in self.labels]

    def check(self, model: "Model") -> None:
        """Raises UserError for labels or a template that are wrong, and for a model of other relations."""
        self.check_labels()
        _relations(head_of(model))

    def check_labels(self) -> None:
        """Raises UserError for labels or a template that are wrong."""
        labels, is_list = self.labels, not isinstance(self.labels, str)
        if not labels or not is_list or not all(label.strip() for label in labels) or len({*labels}) < len(labels):
            got = brief([*labels] if is_list else labels)
            raise UserError(f"labels: expected a list of different labels, got {got}; try ['sport', 'politics']")
        if self.template is not None and "{}" not in self.template:
            raise UserError(f"template: expected {{}} in place of the label, got {self.template!r}; try {TEMPLATE!r}")


def entailed(model: "Model", texts: Sequence[Input], asked: ZeroShot) -> Rows:
    """The score of each label for each text, by a model of natural language inference; none for a blank text.

    Labels exclude each other: softmax over the labels of the logit of entailment. With `several`, or a single label:
    softmax over contradiction and entailment, for each label alone.
    """
    asked.check(model)
    entailment, contradiction = _relations(head_of(model))
    known = [text for text in map(_text, texts) if text.strip()]
    pairs = [(text, hypothesis) for text in known for hypothesis in asked.sentences(TEMPLATE)]
    found = read_logits(model, pairs).view(len(known), len(asked.labels), head_of(model).n_labels)
    if asked.several or len(asked.labels) == 1:
        shares = found[..., [contradiction, entailment]].softmax(-1)[..., 1]
    else:
        shares = found[..., entailment].softmax(-1)
    rows = iter([list(zip(asked.labels, row, strict=True)) for row in shares.tolist()])
    return [next(rows) if _text(text).strip() else [] for text in texts]


def entailments(model: "Model", texts: Sequence[str], asked: ZeroShot) -> Iterator[Prediction]:
    """The labels that each text entails, as predictions; empty for a blank text."""
    for row in entailed(model, texts, asked):
        yield labelled(dict(row), several=asked.several) if row else NOTHING


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
