"""PEGASUS's configurations."""

from tests.parity.harness import cases

BASE = {
    "vocab_size": 60,
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
    "tanh-gelu": {"activation_function": "gelu_new"},
    "large": {"activation_function": "relu", "scale_embedding": True},
    "large-vocabulary": {"vocab_size": 300},
    "small-vocabulary": {"vocab_size": 12},
    "dropouts": {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.15},
    "no-dropout": {"dropout": 0.0},
    "scaled-wide": {"scale_embedding": True, "d_model": 32, "encoder_attention_heads": 8, "decoder_attention_heads": 8},
}

CASES = [
    *cases("pegasus", "PegasusForConditionalGeneration", BASE, VARIANTS),
    *cases("pegasus", "PegasusModel", BASE, {"scaled": {"scale_embedding": True}}),
]
