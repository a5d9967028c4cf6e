"""ALBERT's configurations."""

from tests.parity.cases import bert
from tests.parity.harness import relatives

BASE = {**bert.BASE, "embedding_size": 10, "num_hidden_layers": 3}
VARIANTS = {
    **{name: change for name, change in bert.VARIANTS.items() if name != "tanh-gelu"},
    "gelu": {"hidden_act": "gelu"},
    "equal-widths": {"embedding_size": 24},
    "wide-tables": {"embedding_size": 40},
    "two-groups": {"num_hidden_layers": 6, "num_hidden_groups": 2},
    "own-weights": {"num_hidden_groups": 3},
}

CASES = relatives(
    "albert",
    {
        "AlbertForMaskedLM": VARIANTS,
        "AlbertModel": {"own-weights": {"num_hidden_groups": 3}},
        "AlbertForSequenceClassification": {
            "labels": {"id2label": {0: "bad", 1: "fair", 2: "good"}, "classifier_dropout_prob": 0.4}
        },
        "AlbertForTokenClassification": {"labels": {"num_labels": 5}},
        "AlbertForQuestionAnswering": {},
    },
    BASE,
    quick=("two-groups-AlbertForMaskedLM", "labels-AlbertForSequenceClassification"),
)
