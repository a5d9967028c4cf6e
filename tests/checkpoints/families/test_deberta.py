"""DeBERTa-v2 and v3: configs of the hub, the newer spelling of the masked-LM head, and what is refused by name."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from clearhead.api import load
from clearhead.checkpoints.families import family_for, family_of
from clearhead.checkpoints.families.family import canonical
from clearhead.config import ModelConfig, StackConfig
from clearhead.config.positions import Disentangled
from clearhead.errors import UserError
from clearhead.tasks.task import Batch
from clearhead.trace import trace
from tests.later import later
from tests.parity.cases import base, of
from tests.parity.harness import reference
from tests.tasks.reference import UPDATES, mask_of, require_equal_updates
from tests.tasks.test_classification import task_of

BASE = base("deberta-v2")

transformers = later("transformers")

V3: dict[str, Any] = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-07,
    "max_position_embeddings": 512,
    "max_relative_positions": -1,
    "model_type": "deberta-v2",
    "norm_rel_ebd": "layer_norm",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "pooler_dropout": 0,
    "pooler_hidden_act": "gelu",
    "pooler_hidden_size": 768,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "position_buckets": 256,
    "relative_attention": True,
    "share_att_key": True,
    "type_vocab_size": 0,
    "vocab_size": 128100,
}


def read(**changes: Any) -> ModelConfig:
    document = {**V3, **changes}
    return family_of(document, where="c").read(document, where="c")[0]


def stack_of(config: ModelConfig) -> StackConfig:
    assert config.encoder is not None
    return config.encoder


def test_v3_is_read_whole_and_written_back() -> None:
    config, family = read(), family_of(V3, where="c")
    assert stack_of(config).positions == Disentangled(max_distance=512, n_buckets=256, shared=True, norm=True)
    assert stack_of(config).score_scale == pytest.approx((64 * 3) ** -0.5, rel=1e-7)
    assert family.unknown(V3, where="c") == []
    found = family_for(config, "deberta-v2")
    assert found is not None
    assert canonical(family.read(found[2], where="c")[0]) == canonical(config)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conv_kernel_size": 3}, "conv_kernel_size: expected 0, the only value that is supported, got 3"),
        ({"embedding_size": 128}, "embedding_size: expected 768, which is hidden_size, got 128"),
        ({"attention_head_size": 32}, "attention_head_size: expected 64"),
        ({"pos_att_type": None}, "relative_attention: expected c2p or p2c in pos_att_type"),
        ({"position_buckets": 1}, "position_buckets=1"),
        ({"pooler_hidden_act": "silu", "architectures": ["DebertaV2ForSequenceClassification"]}, "pooler_hidden_act"),
        ({"position_buckets": "many"}, "position_buckets: expected a whole number, got 'many'"),
    ],
)
def test_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(**changes)


def test_a_checkpoint_of_v3_has_the_newer_spelling_of_its_head(tmp_path: Path) -> None:
    theirs = transformers.DebertaV2ForMaskedLM(transformers.DebertaV2Config(**BASE, legacy=False)).eval()
    with torch.no_grad():
        for i, parameter in enumerate(theirs.parameters()):
            parameter.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(i))
    theirs.save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs" / "model.safetensors"
    unread = ("mask_predictions.dense.weight", "deberta.embeddings.position_embeddings.weight")
    save_file(load_file(path) | {name: torch.ones(2) for name in unread}, path)
    ids = torch.randint(1, 60, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = theirs(ids).logits
        ours = load(tmp_path / "theirs")
        torch.testing.assert_close(ours.network(ids), expected, rtol=1e-5, atol=1e-5)
        ours.save(tmp_path / "ours")
        back = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours").eval()
        torch.testing.assert_close(back(ids).logits, expected, rtol=1e-5, atol=1e-5)


def test_terms_have_addresses_and_every_number_can_be_derived(tmp_path: Path) -> None:
    reference(of("deberta-v2")[0]).save_pretrained(tmp_path)
    network = load(tmp_path).network
    with torch.no_grad(), trace(network, {"encoder.blocks.1.attn.distance.c2p": 0.0}) as seen:
        network(torch.tensor([[3, 4, 5]]))
    at = "encoder.blocks.1.attn"
    content = seen[f"{at}.scores"] - seen[f"{at}.distance.p2c"]
    scale = network.last_stack.config.score_scale
    torch.testing.assert_close(content, scale * seen[f"{at}.q"] @ seen[f"{at}.k"].mT, rtol=1e-5, atol=1e-5)


@UPDATES
def test_losses_and_updates_are_those_of_the_other_library(steps: int, tmp_path: Path) -> None:
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
