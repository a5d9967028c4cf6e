"""In every task, the losses of updates and what an export computes are those of the reference library."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.api import Model
from clearhead.recipe.data import Infilling, Spans
from clearhead.tasks.images.data import Augmentation
from clearhead.tasks.task import Batch, RecipeTask
from tests.later import later
from tests.tasks import test_chat as chat
from tests.tasks import test_classification as classification
from tests.tasks import test_denoising as denoising
from tests.tasks import test_embedding as embedding
from tests.tasks import test_image_classification as images
from tests.tasks import test_masked_lm as masked_lm
from tests.tasks import test_question_answering as answers
from tests.tasks import test_tagging as tagging
from tests.tasks import test_text_to_text as text_to_text
from tests.tasks.reference import UPDATES, apart, labels_of, mask_of, require_equal_updates, small_encoder_decoder
from tests.tasks.small import network_of

transformers = later("transformers")


def ids_of(batch: Batch) -> Tensor:
    return batch.inputs[0].ids


def class_loss(theirs: Any, batch: Batch) -> Tensor:
    labels = batch.labels.double() if batch.labels.is_floating_point() else batch.labels
    return theirs(ids_of(batch), attention_mask=mask_of(batch), labels=labels).loss


def tag_loss(theirs: Any, batch: Batch) -> Tensor:
    return theirs(ids_of(batch), attention_mask=mask_of(batch), labels=labels_of(batch)).loss


def span_loss(theirs: Any, batch: Batch) -> Tensor:
    (starts, ends), types = batch.labels.T, batch.inputs[0].types
    mask = mask_of(batch)
    return theirs(
        ids_of(batch), token_type_ids=types, attention_mask=mask, start_positions=starts, end_positions=ends
    ).loss


def mask_loss(theirs: Any, batch: Batch) -> Tensor:
    """Several texts share a row; a mask over pairs of cells keeps them apart there."""
    positions = batch.inputs[0].positions
    return theirs(ids_of(batch), attention_mask=apart(batch), position_ids=positions, labels=labels_of(batch)).loss


def chat_loss(theirs: Any, batch: Batch) -> Tensor:
    (tokens,) = batch.inputs
    logits = theirs(tokens.ids, attention_mask=apart(batch, causal=True), position_ids=tokens.positions).logits
    return F.cross_entropy(logits[tokens.valid], batch.labels)  # Its own loss rounds the logits to float32.


def vector_loss(theirs: Any, batch: Batch) -> Tensor:
    mask = mask_of(batch)
    states = theirs(ids_of(batch), attention_mask=mask).last_hidden_state
    vectors = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return embedding.reference(vectors.chunk(2), symmetric=True)


def picture_loss(theirs: Any, batch: Batch) -> Tensor:
    return theirs(ids_of(batch), labels=batch.labels).loss


def pair_loss(theirs: Any, batch: Batch) -> Tensor:
    source, target = batch.inputs
    mask = None if source.valid is None else source.valid.long()
    return theirs(source.ids, attention_mask=mask, decoder_input_ids=target.ids, labels=labels_of(batch)).loss


@dataclass(frozen=True)
class Case:
    """A task, the preset of its network, and the class and the loss of theirs."""

    make: Callable[[], RecipeTask[Any]]
    preset: str
    theirs: str
    loss_of: Callable[[Any, Batch], Tensor]
    options: Mapping[str, Any] = field(default_factory=dict)
    change: Callable[[Batch], Batch] = lambda batch: batch


OF_TEXTS = "ForSequenceClassification"
EAGER = {"attn_implementation": "eager"}  # It takes a mask over pairs of cells.
CASES = {
    **{
        problem: Case(partial(classification.task_of, problem), "bert-base", f"AutoModel{OF_TEXTS}", class_loss)
        for problem in classification.PROBLEMS
    },
    "tagging": Case(tagging.task_of, "bert-base", "BertForTokenClassification", tag_loss),
    "answers": Case(answers.task_of_one_length, "bert-base", "BertForQuestionAnswering", span_loss),
    "masked": Case(lambda: masked_lm.task_of(masked=0.3), "bert-base", "BertForMaskedLM", mask_loss, EAGER),
    "chat": Case(chat.task_of, "gpt2", "GPT2LMHeadModel", chat_loss, EAGER),
    "vectors": Case(
        lambda: embedding.task_of([one[:2] for one in embedding.TRIPLES], symmetric=True),
        "bert-base",
        "BertModel",
        vector_loss,
        {"add_pooling_layer": False},
    ),
    "pictures": Case(
        lambda: images.task_of(augment=Augmentation(shift=1, flip=True)),
        "image-classifier",
        "ViTForImageClassification",
        picture_loss,
        change=images.doubled,
    ),
}


@UPDATES
@pytest.mark.parametrize("name", CASES)
def test_updates(name: str, steps: int):
    case, folder = CASES[name], "model"
    task = case.make()
    network = network_of(task, case.preset)
    if isinstance(task, images.ImageClassification):
        Model(network, images=task.processor).save(folder)
    else:
        Model(network, task.tokenizer).save(folder)
    theirs = getattr(transformers, case.theirs).from_pretrained(folder, dtype=torch.float64, **case.options)
    require_equal_updates(task, network, theirs, case.loss_of, steps=steps, change=case.change)


@UPDATES
@pytest.mark.parametrize(
    "make",
    [text_to_text.task_of, lambda: denoising.task_of(Spans()), lambda: denoising.task_of(Infilling())],
    ids=["text to text", "spans", "infilling"],
)
def test_updates_of_pairs(make: Callable[[], Any], steps: int, tmp_path):
    task = make()
    theirs, network = small_encoder_decoder(tmp_path, task.tokenizer.vocab_size)
    require_equal_updates(task, network, theirs, pair_loss, steps=steps)


@pytest.mark.parametrize(
    ("make", "preset", "theirs"),
    [
        *((classification.task_of, name, "Sequence") for name in ("classifier", "bert-base", "gpt2", "llama-tiny")),
        *((tagging.task_of, name, "Token") for name in ("classifier", "bert-base", "gpt2")),
        *((answers.task_of, name, "Question") for name in ("classifier", "bert-base")),
    ],
)
def test_an_export_opens(make: Callable[[], Any], preset: str, theirs: str):
    """With a head that the family has, wherever the checkpoint came from."""
    task = make()
    network = network_of(task, preset).float()
    folder = Model(network, task.tokenizer).save("model")
    name = "AutoModelForQuestionAnswering" if theirs == "Question" else f"AutoModelFor{theirs}Classification"
    opened = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor([[5, 6, 7]])
    said, logits = opened(ids), network(ids)
    if theirs == "Question":
        said.logits, logits = said.start_logits, logits[..., 0]
    else:
        labels = task.tags if theirs == "Token" else task.labels
        assert opened.config.id2label == dict(enumerate(labels))
    torch.testing.assert_close(said.logits, logits, atol=1e-5, rtol=1e-5)
