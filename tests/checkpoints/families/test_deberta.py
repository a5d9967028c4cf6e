"""DeBERTa-v2 and v3: configs of the hub, the newer spelling of the masked-LM head, and what is refused by name."""

from typing import Any

import torch

from clearhead.api import load
from clearhead.tasks.task import Batch
from clearhead.trace import trace
from tests.later import later
from tests.parity.cases import base, of
from tests.parity.harness import reference
from tests.tasks.reference import UPDATES, mask_of, require_equal_updates
from tests.tasks.test_classification import task_of

BASE = base("deberta-v2")

transformers = later("transformers")


def test_terms_have_addresses_and_every_number_can_be_derived(tmp_path):
    reference(of("deberta-v2")[0]).save_pretrained(tmp_path)
    network = load(tmp_path).network
    with torch.no_grad(), trace(network, {"encoder.blocks.1.attn.distance.c2p": 0.0}) as seen:
        network(torch.tensor([[3, 4, 5]]))
    at = "encoder.blocks.1.attn"
    content = seen[f"{at}.scores"] - seen[f"{at}.distance.p2c"]
    scale = network.last_stack.config.score_scale
    torch.testing.assert_close(content, scale * seen[f"{at}.q"] @ seen[f"{at}.k"].mT, rtol=1e-5, atol=1e-5)


@UPDATES
def test_losses_and_updates_are_those_of_the_other_library(steps: int, tmp_path):
    task = task_of("single_label_classification", packed=False)
    dropouts = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    labels = {"num_labels": 3, "problem_type": "single_label_classification"}
    config = {**BASE, **dropouts, **labels, "vocab_size": task.tokenizer.vocab_size}
    torch.manual_seed(0)
    theirs = transformers.DebertaV2ForSequenceClassification(transformers.DebertaV2Config(**config))
    theirs.save_pretrained(tmp_path)

    def loss_of(model: Any, batch: Batch) -> torch.Tensor:
        return model(batch.inputs[0].ids, attention_mask=mask_of(batch), labels=batch.labels).loss

    require_equal_updates(task, load(tmp_path).network, theirs, loss_of, steps=steps)
