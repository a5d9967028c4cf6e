"""RoBERTa's configurations, and those of the same network under other names."""

from tests.parity.harness import Case, cases

PAD = 1
BASE = {
    "vocab_size": 60,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 20,
    "type_vocab_size": 1,
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
    "eps": {"layer_norm_eps": 1e-3},
    "usual-eps": {"layer_norm_eps": 1e-5},
    "two-types": {"type_vocab_size": 2},
    "short": {"max_position_embeddings": 9},
    "large-vocabulary": {"vocab_size": 300},
    "no-dropout": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "dropouts": {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3},
    "untied": {"tie_word_embeddings": False},
    "untied-wide": {"tie_word_embeddings": False, "hidden_size": 40, "num_attention_heads": 5},
}

STATES = {
    "relu": {"hidden_act": "relu"},
    "tanh-gelu": {"hidden_act": "gelu_new"},
    "silu": {"hidden_act": "silu"},
    "long": {"max_position_embeddings": 600},
}


def named(family: str, name: str) -> list[Case]:
    """The base of each class, under another variant's name: what takes long is done once for all three."""
    heads = ("ForMaskedLM", "Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
    return [Case(family, "renamed", f"{name}{head}", BASE, PAD) for head in heads]


CASES = [
    *cases("roberta", "RobertaForMaskedLM", BASE, VARIANTS, pad=PAD),
    *cases("roberta", "RobertaForMaskedLM", {**BASE, "pad_token_id": 3}, {"far": {}}, pad=3)[1:],
    *cases("roberta", "RobertaForMaskedLM", {**BASE, "pad_token_id": 0}, {"near": {}}, pad=0)[1:],
    *cases("roberta", "RobertaModel", BASE, STATES, pad=PAD),
    *cases(
        "roberta",
        "RobertaForSequenceClassification",
        BASE,
        {
            "labels": {"id2label": {0: "bad", 1: "fair", 2: "good"}, "classifier_dropout": 0.4},
            "relu": {"hidden_act": "relu"},
        },
        pad=PAD,
    ),
    *cases("roberta", "RobertaForTokenClassification", BASE, {"labels": {"num_labels": 5}}, pad=PAD),
    *cases("roberta", "RobertaForQuestionAnswering", BASE, {}, pad=PAD),
    *named("xlm-roberta", "XLMRoberta"),
    *named("camembert", "Camembert"),
    *named("data2vec-text", "Data2VecText"),
]
