"""BERT's configurations."""

from tests.parity.harness import cases

BASE = {
    "vocab_size": 60,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 20,
}

VARIANTS = {
    "one-layer": {"num_hidden_layers": 1},
    "deep": {"num_hidden_layers": 4},
    "one-head": {"num_attention_heads": 1},
    "eight-heads": {"hidden_size": 32, "num_attention_heads": 8},
    "wide": {"hidden_size": 48, "num_attention_heads": 4},
    "narrow": {"hidden_size": 16, "num_attention_heads": 2},
    "inner": {"intermediate_size": 96},
    "narrow-inner": {"intermediate_size": 8},
    "relu": {"hidden_act": "relu"},
    "tanh-gelu": {"hidden_act": "gelu_new"},
    "pytorch-tanh-gelu": {"hidden_act": "gelu_pytorch_tanh"},
    "silu": {"hidden_act": "silu"},
    "eps": {"layer_norm_eps": 1e-3},
    "one-type": {"type_vocab_size": 1},
    "many-types": {"type_vocab_size": 5},
    "short": {"max_position_embeddings": 7},
    "large-vocabulary": {"vocab_size": 300},
    "no-dropout": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "dropouts": {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3},
    "untied": {"tie_word_embeddings": False},
    "untied-wide": {"tie_word_embeddings": False, "hidden_size": 40, "num_attention_heads": 5, "hidden_act": "relu"},
}

NAMES = {"id2label": {0: "bad", 1: "fair", 2: "good"}}

CASES = [
    *cases("bert", "BertForMaskedLM", BASE, VARIANTS),
    *cases("bert", "BertModel", BASE, {}),
    *cases(
        "bert",
        "BertForSequenceClassification",
        BASE,
        {"labels": {**NAMES, "classifier_dropout": 0.4}, "regression": {"num_labels": 1}},
    ),
    *cases("bert", "BertForTokenClassification", BASE, {"labels": {"num_labels": 5}}),
    *cases("bert", "BertForQuestionAnswering", BASE, {}),
]
