"""What comparison cannot see of Marian and PEGASUS: configs as they are on the hub, refusals, copies in the file."""

from typing import Any

import pytest
import torch

from clearhead.checkpoints.families import family_of
from clearhead.checkpoints.weights import mapping
from clearhead.config import LanguageHead, Sinusoidal
from clearhead.errors import UserError

# opus-mt-en-de, its sizes made small.
OPUS: dict[str, Any] = {
    "_num_labels": 3,
    "activation_dropout": 0.0,
    "activation_function": "swish",
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "architectures": ["MarianMTModel"],
    "attention_dropout": 0.0,
    "bad_words_ids": [[58100]],
    "bos_token_id": 0,
    "classif_dropout": 0.0,
    "classifier_dropout": 0.0,
    "d_model": 16,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 24,
    "decoder_layerdrop": 0.0,
    "decoder_layers": 1,
    "decoder_start_token_id": 19,
    "decoder_vocab_size": 20,
    "dropout": 0.1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "encoder_layerdrop": 0.0,
    "encoder_layers": 1,
    "eos_token_id": 0,
    "extra_pos_embeddings": 2,
    "forced_eos_token_id": 0,
    "gradient_checkpointing": False,
    "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
    "init_std": 0.02,
    "is_encoder_decoder": True,
    "label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2},
    "max_length": 512,
    "max_position_embeddings": 512,
    "model_type": "marian",
    "normalize_before": False,
    "normalize_embedding": False,
    "num_beams": 6,
    "num_hidden_layers": 1,
    "pad_token_id": 19,
    "scale_embedding": True,
    "share_encoder_decoder_embeddings": True,
    "static_position_embeddings": True,
    "transformers_version": "4.22.0.dev0",
    "use_cache": True,
    "vocab_size": 20,
}
SUMMARY = OPUS | {
    "model_type": "pegasus",
    "architectures": ["PegasusForConditionalGeneration"],
    "activation_function": "relu",
    "add_final_layer_norm": True,
    "normalize_before": True,
    "extra_pos_embeddings": 1,
    "force_bos_token_to_be_generated": False,
}
for name in ("decoder_vocab_size", "share_encoder_decoder_embeddings"):
    del SUMMARY[name]


def test_reads_a_config_of_the_hub() -> None:
    config, head = family_of(OPUS, where="c").read(OPUS, where="c")
    assert head.architecture == "MarianMTModel"
    assert config.encoder is not None
    assert config.encoder.activation == "silu"
    assert config.encoder.norm_place == "post"
    assert config.encoder.positions == Sinusoidal(layout="concatenated")
    assert config.share_embeddings
    assert config.head == LanguageHead(tied=True, bias=True)
    config, _ = family_of(SUMMARY, where="c").read(SUMMARY, where="c")
    assert config.encoder is not None
    assert config.encoder.has_final_norm


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("encoder_layerdrop", 0.1, "c:encoder_layerdrop: expected 0.0, the only value that is supported, got 0.1"),
        ("normalize_before", True, "c:normalize_before: expected False, .*"),
        ("num_hidden_layers", 3, "c:num_hidden_layers: expected 1, which is encoder_layers, got 3"),
        ("tie_word_embeddings", False, "c:tie_word_embeddings: expected true, as share_encoder_decoder_embeddings .*"),
        (
            "sinusoidal_layout",
            "spiral",
            "c:sinusoidal_layout:.* expected 'interleaved' or 'concatenated', got 'spiral'",
        ),
        ("activation_function", "mish", "c:activation_function: expected relu or .*"),
    ],
)
def test_refuses_what_it_does_not_have(field: str, value: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        family_of(OPUS, where="c").read(OPUS | {field: value}, where="c")


@pytest.mark.parametrize("layout", ["concatenated", "interleaved"])
def test_copies_in_the_file_must_be_equal(layout: str) -> None:
    family = family_of(OPUS, where="c")
    config, head = family.read(OPUS | {"sinusoidal_layout": layout}, where="c")
    rules = family.table(config, head)
    table = torch.randn(20, 16)
    theirs = {f"model.{name}.weight": table for name in ("shared", "encoder.embed_tokens", "decoder.embed_tokens")}
    theirs |= {"lm_head.weight": table.clone(), "model.encoder.embed_positions.weight": torch.zeros(512, 16)}
    found = mapping.load(rules, theirs, where="f")
    assert list(found.tensors) == ["encoder.embed.tokens.weight"]
    assert found.left_out == {}
    assert torch.equal(mapping.save(rules, found.tensors)["model.shared.weight"], table)
    theirs["lm_head.weight"] = table + 1
    with pytest.raises(UserError, match=r"f:lm_head\.weight: expected the numbers of model\.shared\.weight"):
        mapping.load(rules, theirs, where="f")


def test_an_interleaved_tensor_of_another_shape_is_named() -> None:
    family = family_of(OPUS, where="c")
    config, head = family.read(OPUS | {"sinusoidal_layout": "interleaved"}, where="c")
    with pytest.raises(UserError, match=r"f:model\.shared\.weight: expected 16 on axis 1, got shape \[20, 15\]"):
        mapping.load(family.table(config, head), {"model.shared.weight": torch.zeros(20, 15)}, where="f")
