"""Qwen2's configurations."""

from tests.parity.harness import cases

BASE = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
}
WINDOW = {"use_sliding_window": True, "sliding_window": 3}
LOCAL, FULL = "sliding_attention", "full_attention"

VARIANTS = {
    "one-layer": {"num_hidden_layers": 1},
    "deep": {"num_hidden_layers": 5},
    "multi-head": {"num_key_value_heads": 4},
    "multi-query": {"num_key_value_heads": 1},
    "wide-heads": {"head_dim": 16},
    "tied": {"tie_word_embeddings": True},
    "relu": {"hidden_act": "relu"},
    "gelu": {"hidden_act": "gelu"},
    "eps": {"rms_norm_eps": 1e-3},
    "no-window-in-use": {"sliding_window": 3, "max_window_layers": 0},
    "window-everywhere": {**WINDOW, "max_window_layers": 0},
    "window-above": {**WINDOW, "max_window_layers": 1},
    "window-on-top": {**WINDOW, "max_window_layers": 2},
    "window-nowhere": {**WINDOW, "max_window_layers": 28},
    "window-1": {**WINDOW, "sliding_window": 1, "max_window_layers": 1},
    "window-below": {**WINDOW, "layer_types": [LOCAL, FULL, FULL]},
    "window-between": {**WINDOW, "layer_types": [FULL, LOCAL, FULL]},
    "window-around": {**WINDOW, "layer_types": [LOCAL, FULL, LOCAL]},
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
    *cases("qwen2", "Qwen2ForCausalLM", BASE, VARIANTS),
    *cases("qwen2", "Qwen2Model", BASE, {}),
    *cases(
        "qwen2",
        "Qwen2ForSequenceClassification",
        {**BASE, "pad_token_id": 0},
        {"labels": {"id2label": {0: "bad", 1: "fair", 2: "good"}}},
    ),
    *cases("qwen2", "Qwen2ForTokenClassification", BASE, {"labels": {"num_labels": 5}}),
    *cases("qwen2", "Qwen2ForQuestionAnswering", BASE, {}),
]
