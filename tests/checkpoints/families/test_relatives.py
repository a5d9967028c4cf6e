"""Families that share most code with others: configs of the hub, and what each refuses by name."""

from typing import Any

import pytest

from clearhead.checkpoints.families import family_for, family_of
from clearhead.checkpoints.families.family import canonical
from clearhead.config import ClassificationHead, ModelConfig, Sinusoidal
from clearhead.errors import UserError

NLLB: dict[str, Any] = {
    "_name_or_path": "facebook/nllb-200-distilled-600M",
    "activation_dropout": 0.0,
    "activation_function": "relu",
    "architectures": ["M2M100ForConditionalGeneration"],
    "attention_dropout": 0.1,
    "bos_token_id": 0,
    "d_model": 1024,
    "decoder_attention_heads": 16,
    "decoder_ffn_dim": 4096,
    "decoder_layerdrop": 0,
    "decoder_layers": 12,
    "decoder_start_token_id": 2,
    "dropout": 0.1,
    "encoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "encoder_layerdrop": 0,
    "encoder_layers": 12,
    "eos_token_id": 2,
    "init_std": 0.02,
    "is_encoder_decoder": True,
    "max_length": 200,
    "max_position_embeddings": 1024,
    "model_type": "m2m_100",
    "num_hidden_layers": 12,
    "pad_token_id": 1,
    "scale_embedding": True,
    "tokenizer_class": "NllbTokenizer",
    "torch_dtype": "float32",
    "transformers_version": "4.21.0.dev0",
    "use_cache": True,
    "vocab_size": 256206,
}

MBART_50: dict[str, Any] = {
    "_num_labels": 3,
    "activation_dropout": 0.0,
    "activation_function": "relu",
    "add_bias_logits": False,
    "add_final_layer_norm": True,
    "architectures": ["MBartForConditionalGeneration"],
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "classif_dropout": 0.0,
    "classifier_dropout": 0.0,
    "d_model": 1024,
    "decoder_attention_heads": 16,
    "decoder_ffn_dim": 4096,
    "decoder_layerdrop": 0.0,
    "decoder_layers": 12,
    "decoder_start_token_id": 2,
    "dropout": 0.1,
    "early_stopping": True,
    "encoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "encoder_layerdrop": 0.0,
    "encoder_layers": 12,
    "eos_token_id": 2,
    "forced_eos_token_id": 2,
    "gradient_checkpointing": False,
    "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
    "init_std": 0.02,
    "is_encoder_decoder": True,
    "label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2},
    "max_length": 200,
    "max_position_embeddings": 1024,
    "model_type": "mbart",
    "normalize_before": True,
    "normalize_embedding": True,
    "num_beams": 5,
    "num_hidden_layers": 12,
    "output_past": True,
    "pad_token_id": 1,
    "scale_embedding": True,
    "static_position_embeddings": False,
    "tokenizer_class": "MBart50Tokenizer",
    "transformers_version": "4.4.0.dev0",
    "use_cache": True,
    "vocab_size": 250054,
}

MT5: dict[str, Any] = {
    "architectures": ["MT5ForConditionalGeneration"],
    "d_ff": 1024,
    "d_kv": 64,
    "d_model": 512,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "feed_forward_proj": "gated-gelu",
    "initializer_factor": 1.0,
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-06,
    "model_type": "mt5",
    "num_decoder_layers": 8,
    "num_heads": 6,
    "num_layers": 8,
    "pad_token_id": 0,
    "relative_attention_num_buckets": 32,
    "tie_word_embeddings": False,
    "tokenizer_class": "T5Tokenizer",
    "transformers_version": "4.5.0.dev0",
    "use_cache": True,
    "vocab_size": 250112,
}

ALBERT: dict[str, Any] = {
    "architectures": ["AlbertForMaskedLM"],
    "attention_probs_dropout_prob": 0,
    "bos_token_id": 2,
    "classifier_dropout_prob": 0.1,
    "down_scale_factor": 1,
    "embedding_size": 128,
    "eos_token_id": 3,
    "gap_size": 0,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "inner_group_num": 1,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "model_type": "albert",
    "net_structure_type": 0,
    "num_attention_heads": 12,
    "num_hidden_groups": 1,
    "num_hidden_layers": 12,
    "num_memory_blocks": 0,
    "pad_token_id": 0,
    "type_vocab_size": 2,
    "vocab_size": 30000,
}

EUROBERT: dict[str, Any] = {"architectures": ["EuroBertForSequenceClassification"], "model_type": "eurobert"}
MPNET: dict[str, Any] = {"model_type": "mpnet"}
HUB = {"nllb": NLLB, "mbart-50": MBART_50, "mt5": MT5, "albert": ALBERT, "eurobert": EUROBERT, "mpnet": MPNET}


def read(document: dict[str, Any]) -> ModelConfig:
    return family_of(document, where="c").read(document, where="c")[0]


@pytest.mark.parametrize("name", HUB)
def test_configs_of_the_hub_are_read_whole_and_written_back(name: str) -> None:
    document = HUB[name]
    config, family = read(document), family_of(document, where="c")
    assert family.unknown(document, where="c") == []
    found = family_for(config, family.model_type)
    assert found is not None
    assert found[0] is family
    assert canonical(read(found[2])) == canonical(config)


def test_waves_begin_after_the_padding_and_end_at_their_base() -> None:
    config = read(NLLB)
    assert config.decoder is not None
    assert config.decoder.positions == Sinusoidal(layout="concatenated", base=10_000 ** (512 / 511), offset=2)
    assert config == read({**NLLB, "decoder_layerdrop": 0.05, "encoder_layerdrop": 0.05})


def test_a_classifier_pools_as_its_config_says() -> None:
    for name, expected in {"late": ("mean", True), "mean": ("mean", False), "bos": ("first", False)}.items():
        head = read({**EUROBERT, "classifier_pooling": name}).head
        assert isinstance(head, ClassificationHead)
        assert (head.pool, head.pools_last) == expected


@pytest.mark.parametrize(
    ("document", "changes", "message"),
    [
        (NLLB, {"tie_word_embeddings": False}, "tie_word_embeddings: expected True, the only value that is supported"),
        (NLLB, {"d_model": 7, "encoder_attention_heads": 1, "decoder_attention_heads": 1}, "d_model=7 must be even"),
        (NLLB, {"d_model": 2}, "d_model: expected another kind of value, got 2"),
        (NLLB, {"pad_token_id": -1}, "pad_token_id: expected another kind of value, got -1"),
        (MBART_50, {"normalize_before": False}, "normalize_before: expected True, the only value that is supported"),
        (MBART_50, {"static_position_embeddings": True}, "static_position_embeddings: expected False"),
        (ALBERT, {"inner_group_num": 2}, "inner_group_num: expected 1, the only value that is supported, got 2"),
        (ALBERT, {"num_hidden_groups": 5}, "num_hidden_groups=5 must divide num_hidden_layers=12"),
        (EUROBERT, {"classifier_pooling": "cls"}, "classifier_pooling: expected another kind of value, got 'cls'"),
        (MPNET, {"relative_attention_num_buckets": 16}, "relative_attention_num_buckets: expected 32"),
        (MPNET, {"max_position_embeddings": 2}, "max_position_embeddings: expected more rows than the 2"),
    ],
)
def test_refused(document: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read({**document, **changes})
