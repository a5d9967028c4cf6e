"""ModernBERT's configurations."""

from tests.parity.harness import cases

FULL, LOCAL = "full_attention", "sliding_attention"

BASE = {
    "vocab_size": 60,
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "intermediate_size": 32,
    "local_attention": 4,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}


def angles(full: float, local: float) -> dict[str, dict[str, object]]:
    """rope_parameters with these bases."""
    return {
        FULL: {"rope_type": "default", "rope_theta": full},
        LOCAL: {"rope_type": "default", "rope_theta": local},
    }


VARIANTS = {
    "one-layer": {"num_hidden_layers": 1},
    "seven-layers": {"num_hidden_layers": 7},
    "one-head": {"num_attention_heads": 1},
    "eight-heads": {"hidden_size": 32, "num_attention_heads": 8},
    "wide": {"hidden_size": 48, "num_attention_heads": 4},
    "inner": {"intermediate_size": 72},
    "relu": {"hidden_activation": "relu", "classifier_activation": "relu"},
    "silu": {"hidden_activation": "silu", "classifier_activation": "silu"},
    "tanh-gelu": {"hidden_activation": "gelu_new", "classifier_activation": "gelu_pytorch_tanh"},
    "eps": {"norm_eps": 1e-3},
    "norm-bias": {"norm_bias": True},
    "attention-bias": {"attention_bias": True},
    "mlp-bias": {"mlp_bias": True},
    "every-bias": {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True},
    "no-output-bias": {"decoder_bias": False},
    "untied": {"tie_word_embeddings": False},
    "windows-of-one": {"local_attention": 2},
    "odd-windows": {"local_attention": 7},
    "wide-windows": {"local_attention": 128},
    "every-second": {"global_attn_every_n_layers": 2},
    "all-full": {"global_attn_every_n_layers": 1},
    "all-local": {"layer_types": [LOCAL] * 4},
    "full-last": {"layer_types": [LOCAL, LOCAL, LOCAL, FULL]},
    "bases": {"rope_parameters": angles(500.0, 20.0)},
    "one-base": {"rope_parameters": angles(100.0, 100.0)},
    "older-bases": {"global_rope_theta": 300.0, "local_rope_theta": 30.0},
    "dropouts": {"embedding_dropout": 0.1, "attention_dropout": 0.2, "mlp_dropout": 0.3},
}

CASES = [
    *cases("modernbert", "ModernBertForMaskedLM", BASE, VARIANTS),
    *cases("modernbert", "ModernBertModel", BASE, {}),
    *cases(
        "modernbert",
        "ModernBertForSequenceClassification",
        BASE,
        {
            "labels": {"id2label": {0: "bad", 1: "fair", 2: "good"}, "classifier_dropout": 0.4},
            "mean": {"classifier_pooling": "mean"},
        },
    ),
    *cases("modernbert", "ModernBertForTokenClassification", BASE, {"labels": {"num_labels": 5}}),
    *cases("modernbert", "ModernBertForQuestionAnswering", BASE, {"bias": {"classifier_bias": True}}),
]
