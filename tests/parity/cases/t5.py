"""T5's configurations."""

from tests.parity.harness import cases

BASE = {
    "vocab_size": 60,
    "d_model": 24,
    "d_kv": 8,
    "d_ff": 40,
    "num_layers": 2,
    "num_heads": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 10,
}

FLAN = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

VARIANTS = {
    "one-layer": {"num_layers": 1},
    "deep-encoder": {"num_layers": 4, "num_decoder_layers": 1},
    "deep-decoder": {"num_layers": 1, "num_decoder_layers": 3},
    "one-head": {"num_heads": 1},
    "eight-heads": {"num_heads": 8},
    "narrow-heads": {"d_kv": 3},
    "wide-heads": {"d_kv": 20},
    "wide": {"d_model": 48, "d_kv": 16},
    "narrow-inner": {"d_ff": 8},
    "default-buckets": {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128},
    "few-buckets": {"relative_attention_num_buckets": 4, "relative_attention_max_distance": 5},
    "gelu": {"feed_forward_proj": "gelu"},
    "tanh-gelu": {"feed_forward_proj": "gelu_new"},
    "gated-relu": {"feed_forward_proj": "gated-relu"},
    "gated-silu": {"feed_forward_proj": "gated-silu"},
    "gated": {"feed_forward_proj": "gated-gelu"},
    "flan": FLAN,
    "flan-wide": {**FLAN, "d_kv": 16, "num_heads": 4, "d_ff": 64},
    "flan-deep": {**FLAN, "num_layers": 3, "num_decoder_layers": 2},
    "unscaled": {"tie_word_embeddings": False},
    "eps": {"layer_norm_epsilon": 1e-3},
    "large-vocabulary": {"vocab_size": 300},
    "dropout": {"dropout_rate": 0.3},
}

CASES = [
    *cases("t5", "T5ForConditionalGeneration", BASE, VARIANTS),
    *cases("t5", "T5Model", BASE, {"flan": FLAN}),
    *cases("t5", "T5EncoderModel", BASE, {"flan": FLAN}),
    *cases(
        "t5",
        "T5ForSequenceClassification",
        BASE,
        {"labels": {"id2label": {0: "bad", 1: "fair", 2: "good"}, "classifier_dropout": 0.1}},
    ),
    *cases("t5", "T5ForTokenClassification", BASE, {"labels": {"num_labels": 5}}),
    *cases("t5", "T5ForQuestionAnswering", BASE, {"flan": FLAN}),
]
