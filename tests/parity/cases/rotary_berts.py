"""Configurations of Nomic BERT, GTE and jina-embeddings-v3."""

from tests.parity.cases import bert
from tests.parity.harness import relatives

BASE = {name: value for name, value in bert.BASE.items() if name != "max_position_embeddings"}
LABELS = {"id2label": {0: "bad", 1: "fair", 2: "good"}, "classifier_dropout": 0.4}
BASE["hidden_size"], BASE["num_attention_heads"] = 24, 2
THETA = {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}}
YARN = {
    "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0},
    "max_position_embeddings": 64,
}
VARIANTS = {
    "one-layer": {"num_hidden_layers": 1},
    "deep": {"num_hidden_layers": 4},
    "one-head": {"num_attention_heads": 1},
    "six-heads": {"num_attention_heads": 6},
    "wide": {"hidden_size": 48, "num_attention_heads": 4},
    "narrow": {"hidden_size": 8},
    "narrow-inner": {"intermediate_size": 7},
    "eps": {"layer_norm_eps": 1e-3},
    "one-type": {"type_vocab_size": 1},
    "many-types": {"type_vocab_size": 5},
    "theta": THETA,
    "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 4.0}},
    "yarn": YARN,
    "large-vocabulary": {"vocab_size": 300},
    "no-dropout": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "dropouts": {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3},
    "untied": {"tie_word_embeddings": False},
    "untied-wide": {"tie_word_embeddings": False, "hidden_size": 40, "num_attention_heads": 5},
}
STATES = {"relu": {"hidden_act": "relu"}, "tanh-gelu": {"hidden_act": "gelu_new"}, "silu": {"hidden_act": "silu"}}

CASES = [
    *relatives(
        "nomic_bert",
        {
            "NomicBertForMaskedLM": {
                **VARIANTS,
                "wide-heads": {"head_dim": 20},
                "narrow-heads": {"head_dim": 6, "num_attention_heads": 3},
                "gelu": {"hidden_act": "gelu"},
            },
            "NomicBertModel": STATES,
            "NomicBertForSequenceClassification": {"labels": LABELS},
            "NomicBertForTokenClassification": {"labels": {"num_labels": 5}},
        },
        BASE,
        quick=("wide-heads-NomicBertForMaskedLM", "labels-NomicBertForSequenceClassification"),
    ),
    *relatives(
        "gte",
        {
            "GteForMaskedLM": {**VARIANTS, "no-types": {"type_vocab_size": 0}},
            "GteModel": STATES,
            "GteForSequenceClassification": {"labels": LABELS},
            "GteForTokenClassification": {"labels": {"num_labels": 5}},
        },
        BASE,
        quick=("no-types-GteForMaskedLM",),
        pad=1,
    ),
    *relatives(
        "jina_embeddings_v3",
        {
            "JinaEmbeddingsV3ForMaskedLM": VARIANTS,
            "JinaEmbeddingsV3Model": STATES,
            "JinaEmbeddingsV3ForSequenceClassification": {"labels": LABELS},
            "JinaEmbeddingsV3ForTokenClassification": {"labels": {"num_labels": 5}},
            "JinaEmbeddingsV3ForQuestionAnswering": {},
        },
        BASE,
        quick=("theta-JinaEmbeddingsV3ForMaskedLM",),
        pad=1,
    ),
]
