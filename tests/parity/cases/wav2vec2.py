"""Configurations of wav2vec 2.0, HuBERT and UniSpeech."""

from tests.parity.harness import relatives

BASE = {
    "vocab_size": 11,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "conv_dim": [8, 10, 6],
    "conv_kernel": [5, 3, 2],
    "conv_stride": [3, 2, 1],
    "num_conv_pos_embeddings": 6,
    "num_conv_pos_embedding_groups": 4,
}
STABLE = {"do_stable_layer_norm": True}
LARGE = {**STABLE, "feat_extract_norm": "layer", "conv_bias": True}

VARIANTS = {
    "large": LARGE,
    "stable": STABLE,
    "every-norm": {"feat_extract_norm": "layer"},
    "biased": {"conv_bias": True},
    "one-layer": {"num_hidden_layers": 1},
    "deep": {**LARGE, "num_hidden_layers": 4},
    "one-head": {"num_attention_heads": 1},
    "wide": {"hidden_size": 40, "num_attention_heads": 5},
    "wide-inner": {"intermediate_size": 96},
    "narrow-inner": {"intermediate_size": 4},
    "one-convolution": {"conv_dim": [7], "conv_kernel": [9], "conv_stride": [4]},
    "one-convolution-every-norm": {
        "conv_dim": [7],
        "conv_kernel": [9],
        "conv_stride": [4],
        "feat_extract_norm": "layer",
    },
    "overlapping": {"conv_kernel": [7, 5, 3], "conv_stride": [2, 1, 1]},
    "gaps": {"conv_kernel": [2, 1, 1], "conv_stride": [3, 2, 2]},
    "one-channel": {"conv_dim": [1, 1, 1]},
    "five-convolutions": {
        "conv_dim": [5, 6, 7, 8, 9],
        "conv_kernel": [4, 3, 2, 2, 1],
        "conv_stride": [2, 2, 1, 1, 1],
    },
    "odd-positions": {"num_conv_pos_embeddings": 7},
    "one-position": {"num_conv_pos_embeddings": 1},
    "far-positions": {"num_conv_pos_embeddings": 64},
    "one-group": {"num_conv_pos_embedding_groups": 1},
    "a-group-each": {"num_conv_pos_embedding_groups": 24},
    "relu": {"hidden_act": "relu", "feat_extract_activation": "relu"},
    "tanh-gelu": {"feat_extract_activation": "gelu_new"},
    "eps": {**LARGE, "layer_norm_eps": 0.1},
    "large-vocabulary": {"vocab_size": 301},
    "another-blank": {"pad_token_id": 10},
    "nothing-hidden": {"mask_time_prob": 0.0},
    "features-hidden": {"mask_time_prob": 0.0, "mask_feature_prob": 0.1},
    "dropouts": {"hidden_dropout": 0.2, "attention_dropout": 0.3, "activation_dropout": 0.1, "final_dropout": 0.4},
}
FEW = {"large": LARGE}
LABELS = {"id2label": {0: "a", 1: "b", 2: "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}

CASES = [
    *relatives(
        "wav2vec2",
        {"Wav2Vec2ForCTC": VARIANTS, "Wav2Vec2Model": FEW, "Wav2Vec2ForAudioFrameClassification": {"labels": LABELS}},
        BASE,
        quick=("large-Wav2Vec2ForCTC", "far-positions-Wav2Vec2ForCTC", "labels-Wav2Vec2ForAudioFrameClassification"),
    ),
    *relatives(
        "hubert",
        {"HubertForCTC": {**FEW, "no-feature-norm": {"feat_proj_layer_norm": False}}, "HubertModel": FEW},
        BASE,
        quick=("no-feature-norm-HubertForCTC",),
    ),
    *relatives("unispeech", {"UniSpeechForCTC": FEW, "UniSpeechModel": {}}, BASE, quick=()),
    *relatives(
        "unispeech-sat",
        {"UniSpeechSatForCTC": FEW, "UniSpeechSatModel": {}, "UniSpeechSatForAudioFrameClassification": {}},
        BASE,
        quick=(),
    ),
]
