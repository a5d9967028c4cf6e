"""Mistral's configurations."""

from tests.parity.harness import cases

BASE = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "sliding_window": 3,
}

VARIANTS = {
    "one-layer": {"num_hidden_layers": 1},
    "deep": {"num_hidden_layers": 5},
    "window-1": {"sliding_window": 1},
    "window-2": {"sliding_window": 2},
    "window-6": {"sliding_window": 6},
    "window-7": {"sliding_window": 7},
    "window-8": {"sliding_window": 8},
    "no-window": {"sliding_window": None},
    "long-window": {"sliding_window": 4096},
    "multi-head": {"num_key_value_heads": 4},
    "multi-query": {"num_key_value_heads": 1},
    "wide-heads": {"head_dim": 16},
    "narrow-heads": {"head_dim": 4},
    "tied": {"tie_word_embeddings": True},
    "gelu": {"hidden_act": "gelu"},
    "relu": {"hidden_act": "relu"},
    "eps": {"rms_norm_eps": 1e-3},
    "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}},
    "linear": {"rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 100.0}},
    "yarn": {
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 8,
            "rope_theta": 100.0,
        }
    },
    "dropout": {"attention_dropout": 0.3},
}

CASES = [
    *cases("mistral", "MistralForCausalLM", BASE, VARIANTS),
    *cases("mistral", "MistralModel", BASE, {}),
    *cases(
        "mistral",
        "MistralForSequenceClassification",
        {**BASE, "pad_token_id": 0},
        {"labels": {"id2label": {0: "bad", 1: "fair", 2: "good"}}},
    ),
    *cases("mistral", "MistralForTokenClassification", BASE, {"labels": {"num_labels": 5}}),
    *cases("mistral", "MistralForQuestionAnswering", BASE, {}),
]
