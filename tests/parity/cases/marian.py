"""Marian's configurations."""

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
    "pad_token_id": 1,
    "decoder_start_token_id": 1,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
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
    "scaled": {"scale_embedding": True},
    "relu": {"activation_function": "relu"},
    "swish": {"activation_function": "swish"},
    "silu": {"activation_function": "silu"},
    "tanh-gelu": {"activation_function": "gelu_new"},
    "opus": {"activation_function": "swish", "scale_embedding": True, "dropout": 0.1},
    "two-tables": {"share_encoder_decoder_embeddings": False},
    "two-vocabularies": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 44},
    "untied": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    "untied-vocabularies": {
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False,
        "decoder_vocab_size": 90,
        "scale_embedding": True,
    },
    "large-vocabulary": {"vocab_size": 300},
    "dropouts": {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.15},
    "no-dropout": {"dropout": 0.0},
}

CASES = [
    *cases("marian", "MarianMTModel", BASE, VARIANTS, pad=1),
    *cases("marian", "MarianModel", BASE, {"two-tables": {"share_encoder_decoder_embeddings": False}}, pad=1),
]
