"""DistilBERT's configurations."""

from tests.parity.harness import relatives

BASE = {"vocab_size": 60, "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 40, "max_position_embeddings": 20}

VARIANTS = {
    "one-layer": {"n_layers": 1},
    "deep": {"n_layers": 4},
    "one-head": {"n_heads": 1},
    "eight-heads": {"dim": 32, "n_heads": 8},
    "wide": {"dim": 48, "n_heads": 4},
    "narrow": {"dim": 6, "n_heads": 2},
    "inner": {"hidden_dim": 96},
    "narrow-inner": {"hidden_dim": 7},
    "relu": {"activation": "relu"},
    "tanh-gelu": {"activation": "gelu_new"},
    "silu": {"activation": "silu"},
    "waves": {"sinusoidal_pos_embds": True},
    "short": {"max_position_embeddings": 7},
    "large-vocabulary": {"vocab_size": 300},
    "no-dropout": {"dropout": 0.0, "attention_dropout": 0.0},
    "dropouts": {"dropout": 0.2, "attention_dropout": 0.3},
    "untied": {"tie_word_embeddings": False},
    "untied-wide": {"tie_word_embeddings": False, "dim": 40, "n_heads": 5, "activation": "relu"},
}

CASES = relatives(
    "distilbert",
    {
        "DistilBertForMaskedLM": VARIANTS,
        "DistilBertModel": {"tanh-gelu": {"activation": "gelu_new"}},
        "DistilBertForSequenceClassification": {
            "labels": {"id2label": {0: "bad", 1: "fair", 2: "good"}, "seq_classif_dropout": 0.4}
        },
        "DistilBertForTokenClassification": {"labels": {"num_labels": 5}},
        "DistilBertForQuestionAnswering": {"dropout": {"qa_dropout": 0.3}},
    },
    BASE,
    quick=("untied-wide-DistilBertForMaskedLM", "labels-DistilBertForSequenceClassification"),
)
