"""BART's configurations."""

from tests.parity.harness import cases

BASE = {
    "vocab_size": 60,
    "max_position_embeddings": 20,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
}

VARIANTS = {
    "one-layer": {"encoder_layers": 1, "decoder_layers": 1},
    "deep-encoder": {"encoder_layers": 4, "decoder_layers": 1},
    "deep-decoder": {"encoder_layers": 1, "decoder_layers": 3},
    "one-head": {"encoder_attention_heads": 1, "decoder_attention_heads": 1},
    "other-heads": {"encoder_attention_heads": 6, "decoder_attention_heads": 2},
    "wide": {"d_model": 48, "encoder_attention_heads": 4, "decoder_attention_heads": 4},
    "narrow": {"d_model": 6},
    "other-inner": {"encoder_ffn_dim": 16, "decoder_ffn_dim": 72},
    "narrow-inner": {"encoder_ffn_dim": 8, "decoder_ffn_dim": 8},
    "scaled": {"scale_embedding": True},
    "relu": {"activation_function": "relu"},
    "swish": {"activation_function": "swish"},
    "silu": {"activation_function": "silu"},
    "tanh-gelu": {"activation_function": "gelu_new"},
    "short": {"max_position_embeddings": 7},
    "long": {"max_position_embeddings": 100},
    "large-vocabulary": {"vocab_size": 300},
    "small-vocabulary": {"vocab_size": 12},
    "dropouts": {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.15},
    "no-dropout": {"dropout": 0.0},
    "scaled-wide": {"scale_embedding": True, "d_model": 32, "encoder_attention_heads": 8, "decoder_attention_heads": 8},
}

CASES = [
    *cases("bart", "BartForConditionalGeneration", BASE, VARIANTS, pad=1),
    *cases("bart", "BartModel", BASE, {"scaled": {"scale_embedding": True}}, pad=1),
    *cases(
        "bart",
        "BartForSequenceClassification",
        BASE,
        {
            "labels": {"id2label": {0: "contradiction", 1: "neutral", 2: "entailment"}, "classifier_dropout": 0.1},
            "five-labels": {"num_labels": 5},
        },
        pad=1,
    ),
    *cases("bart", "BartForQuestionAnswering", BASE, {}, pad=1),
]
