"""Arcee's configurations: Llama's, without a gate."""

from tests.parity.cases import llama
from tests.parity.harness import cases

BASE = {**llama.BASE, "hidden_act": "relu"}
VARIANTS = {
    **{name: change for name, change in llama.VARIANTS.items() if name not in ("relu", "older-spelling")},
    "silu": {"hidden_act": "silu"},
}

CASES = [
    *cases("arcee", "ArceeForCausalLM", BASE, VARIANTS),
    *cases("arcee", "ArceeModel", BASE, {}),
    *cases(
        "arcee",
        "ArceeForSequenceClassification",
        {**BASE, "pad_token_id": 0},
        {"labels": {"id2label": {0: "bad", 1: "fair", 2: "good"}}},
    ),
    *cases("arcee", "ArceeForTokenClassification", BASE, {"labels": {"num_labels": 5}}),
    *cases("arcee", "ArceeForQuestionAnswering", BASE, {}),
]
