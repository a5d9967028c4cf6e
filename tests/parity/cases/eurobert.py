"""EuroBERT's configurations: Llama's, without those of a decoder."""

from tests.parity.cases import llama
from tests.parity.harness import relatives

LABELS = {"id2label": {0: "bad", 1: "fair", 2: "good"}}

CASES = relatives(
    "eurobert",
    {
        "EuroBertForMaskedLM": {**llama.VARIANTS, "biases": {"mlp_bias": True, "attention_bias": True}},
        "EuroBertModel": {},
        "EuroBertForSequenceClassification": {
            "labels": LABELS,
            "mean": {**LABELS, "classifier_pooling": "mean"},
            "bos": {**LABELS, "classifier_pooling": "bos"},
        },
        "EuroBertForTokenClassification": {"labels": {"num_labels": 5}},
    },
    {**llama.BASE, "pad_token_id": 0},
    quick=("biases-EuroBertForMaskedLM", "labels-EuroBertForSequenceClassification"),
)
