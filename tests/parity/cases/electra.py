"""ELECTRA's configurations: the base has tables of the network's width, the others mostly narrower ones."""

from tests.parity.cases import bert
from tests.parity.harness import relatives

NARROW = {"embedding_size": 10}
BASE = {**bert.BASE, "embedding_size": 24}

VARIANTS = {
    "narrow-tables": NARROW,
    "wide-tables": {"embedding_size": 40},
    "one-number": {"embedding_size": 1},
    "narrow-untied": {**NARROW, "tie_word_embeddings": False},
    "narrow-deep": {**NARROW, "num_hidden_layers": 4},
    "narrow-one-layer": {**NARROW, "num_hidden_layers": 1},
    "narrow-one-head": {**NARROW, "num_attention_heads": 1},
    "narrow-wide": {"embedding_size": 16, "hidden_size": 48, "num_attention_heads": 4},
    "narrow-inner": {**NARROW, "intermediate_size": 7},
    "narrow-eps": {**NARROW, "layer_norm_eps": 1e-3},
    "narrow-types": {**NARROW, "type_vocab_size": 5},
    "narrow-short": {**NARROW, "max_position_embeddings": 7},
    "narrow-vocabulary": {**NARROW, "vocab_size": 300},
    "dropouts": {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3},
    "eight-heads": {"hidden_size": 32, "embedding_size": 32, "num_attention_heads": 8},
    "untied": {"tie_word_embeddings": False},
}

STATES = {"relu": {"hidden_act": "relu", **NARROW}, "tanh-gelu": {"hidden_act": "gelu_new"}, "narrow": NARROW}

CASES = relatives(
    "electra",
    {
        "ElectraForMaskedLM": VARIANTS,
        "ElectraForPreTraining": {"silu": {"hidden_act": "silu", **NARROW}, "narrow": NARROW},
        "ElectraModel": STATES,
        "ElectraForSequenceClassification": {
            "labels": {"id2label": {0: "bad", 1: "fair", 2: "good"}, "classifier_dropout": 0.4, **NARROW},
            "relu": {"hidden_act": "relu"},
        },
        "ElectraForTokenClassification": {"labels": {"num_labels": 5, **NARROW}},
        "ElectraForQuestionAnswering": {"narrow": NARROW},
    },
    BASE,
    quick=(
        "narrow-tables-ElectraForMaskedLM",
        "silu-ElectraForPreTraining",
        "labels-ElectraForSequenceClassification",
    ),
)
