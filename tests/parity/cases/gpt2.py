"""GPT-2's configurations."""

from tests.parity.harness import cases

BASE = {
    "vocab_size": 60,
    "n_positions": 20,
    "n_embd": 24,
    "n_layer": 2,
    "n_head": 3,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

VARIANTS = {
    "one-layer": {"n_layer": 1},
    "deep": {"n_layer": 5},
    "one-head": {"n_head": 1},
    "eight-heads": {"n_embd": 32, "n_head": 8},
    "wide": {"n_embd": 48, "n_head": 4},
    "inner": {"n_inner": 40},
    "narrow-inner": {"n_inner": 8},
    "relu": {"activation_function": "relu"},
    "gelu": {"activation_function": "gelu"},
    "silu": {"activation_function": "silu"},
    "tanh-gelu": {"activation_function": "gelu_pytorch_tanh"},
    "untied": {"tie_word_embeddings": False},
    "eps": {"layer_norm_epsilon": 1e-3},
    "unscaled": {"scale_attn_weights": False},
    "short": {"n_positions": 7},
    "large-vocabulary": {"vocab_size": 300},
    "no-dropout": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "dropouts": {"resid_pdrop": 0.2, "embd_pdrop": 0.3, "attn_pdrop": 0.4},
    "upcast": {"reorder_and_upcast_attn": True},
    "untied-wide": {"tie_word_embeddings": False, "n_embd": 40, "n_head": 5, "n_inner": 72},
}

CASES = [
    *cases("gpt2", "GPT2LMHeadModel", BASE, VARIANTS),
    *cases("gpt2", "GPT2Model", BASE, {}),
    *cases(
        "gpt2",
        "GPT2ForSequenceClassification",
        {**BASE, "pad_token_id": 0},
        {"labels": {"id2label": {0: "bad", 1: "fair", 2: "good"}}},
    ),
    *cases("gpt2", "GPT2ForTokenClassification", BASE, {"labels": {"num_labels": 5}}),
    *cases("gpt2", "GPT2ForQuestionAnswering", BASE, {}),
]
