"""ViT's configurations."""

from tests.parity.harness import cases

BASE = {
    "image_size": 12,
    "patch_size": 4,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "num_labels": 5,
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
    "relu": {"hidden_act": "relu"},
    "tanh-gelu": {"hidden_act": "gelu_new"},
    "silu": {"hidden_act": "silu"},
    "eps": {"layer_norm_eps": 1e-3},
    "no-qkv-bias": {"qkv_bias": False},
    "grey": {"num_channels": 1},
    "four-channels": {"num_channels": 4},
    "one-patch": {"image_size": 4},
    "small-patches": {"image_size": 6, "patch_size": 2},
    "pixels": {"image_size": 3, "patch_size": 1},
    "many-patches": {"image_size": 40, "patch_size": 5},
    "names": {"id2label": {0: "cat", 1: "dog", 2: "crane", 3: "bird", 4: "crane"}},
    "dropouts": {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3},
    "stride": {"encoder_stride": 4},
}

CASES = [
    *cases("vit", "ViTForImageClassification", BASE, VARIANTS),
    *cases("vit", "ViTModel", BASE, {"no-qkv-bias": {"qkv_bias": False}}),
]
