"""Llama's configurations."""

from tests.parity.harness import cases

BASE = {
    "vocab_size": 60,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "max_position_embeddings": 32,
}
WAVES = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}

VARIANTS = {
    "one-layer": {"num_hidden_layers": 1},
    "deep": {"num_hidden_layers": 5},
    "one-head": {"num_attention_heads": 1},
    "grouped": {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2},
    "multi-query": {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 1},
    "wide-heads": {"head_dim": 16},
    "narrow-heads": {"head_dim": 4, "num_key_value_heads": 1},
    "attention-bias": {"attention_bias": True},
    "mlp-bias": {"mlp_bias": True},
    "all-biases": {"attention_bias": True, "mlp_bias": True},
    "tied": {"tie_word_embeddings": True},
    "relu": {"hidden_act": "relu"},
    "tanh-gelu": {"hidden_act": "gelu_pytorch_tanh"},
    "gelu": {"hidden_act": "gelu"},
    "eps": {"rms_norm_eps": 1e-3},
    "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}},
    "small-theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 10.0}},
    "linear": {"rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 100.0}},
    "llama3": {"rope_parameters": {**WAVES, "rope_theta": 50.0, "original_max_position_embeddings": 16}},
    "llama3-own-length": {"rope_parameters": {**WAVES, "rope_theta": 50.0}},
    "yarn": {"rope_parameters": {**YARN, "rope_theta": 100.0}},
    "yarn-temperature": {"rope_parameters": {**YARN, "rope_theta": 100.0, "attention_factor": 1.7}},
    "yarn-scales": {"rope_parameters": {**YARN, "rope_theta": 100.0, "mscale": 2.0, "mscale_all_dim": 0.5}},
    "yarn-ramp": {"rope_parameters": {**YARN, "rope_theta": 100.0, "beta_fast": 4.0, "beta_slow": 0.5}},
    "older-spelling": {"rope_theta": 300.0, "rope_scaling": {"type": "linear", "factor": 3.0}},
    "dropout": {"attention_dropout": 0.3},
}

CASES = [
    *cases("llama", "LlamaForCausalLM", BASE, VARIANTS),
    *cases("llama", "LlamaModel", BASE, {}),
    *cases(
        "llama",
        "LlamaForSequenceClassification",
        {**BASE, "pad_token_id": 0},
        {"labels": {"id2label": {0: "bad", 1: "fair", 2: "good"}}},
    ),
    *cases("llama", "LlamaForTokenClassification", BASE, {"labels": {"num_labels": 5}}),
    *cases("llama", "LlamaForQuestionAnswering", BASE, {"biases": {"attention_bias": True}}),
]
