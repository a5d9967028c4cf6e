"""Qwen3's configurations."""

from tests.parity.cases import qwen2
from tests.parity.harness import cases

BASE = {**qwen2.BASE, "head_dim": 8}
VARIANTS = {
    **qwen2.VARIANTS,
    "narrow-heads": {"head_dim": 4},
    "attention-bias": {"attention_bias": True},
    "one-head": {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 32},
}

CASES = [
    *cases("qwen3", "Qwen3ForCausalLM", BASE, VARIANTS),
    *cases("qwen3", "Qwen3Model", BASE, {}),
    *cases(
        "qwen3",
        "Qwen3ForSequenceClassification",
        {**BASE, "pad_token_id": 0},
        {"labels": {"id2label": {0: "bad", 1: "fair", 2: "good"}}},
    ),
    *cases("qwen3", "Qwen3ForTokenClassification", BASE, {"labels": {"num_labels": 5}}),
    *cases("qwen3", "Qwen3ForQuestionAnswering", BASE, {}),
]
