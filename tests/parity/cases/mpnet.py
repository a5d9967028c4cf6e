"""MPNet's configurations."""

from tests.parity.cases import roberta
from tests.parity.harness import relatives

BASE = {name: value for name, value in roberta.BASE.items() if name != "type_vocab_size"}

VARIANTS = {
    **{name: change for name, change in roberta.VARIANTS.items() if name not in ("two-types", "short")},
    "short": {"max_position_embeddings": 10},
    "long": {"max_position_embeddings": 600},
}

CASES = relatives(
    "mpnet",
    {
        "MPNetForMaskedLM": VARIANTS,
        "MPNetModel": {"relu": {"hidden_act": "relu"}, "tanh-gelu": {"hidden_act": "gelu_new"}},
        "MPNetForSequenceClassification": {"labels": {"id2label": {0: "bad", 1: "fair", 2: "good"}}},
        "MPNetForTokenClassification": {"labels": {"num_labels": 5}},
        "MPNetForQuestionAnswering": {},
    },
    BASE,
    quick=("untied-wide-MPNetForMaskedLM", "relu-MPNetModel"),
    pad=roberta.PAD,
)
