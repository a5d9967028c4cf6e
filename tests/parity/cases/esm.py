"""ESM's configurations: rotary positions and left-out masks, as ESM-2 has them, and learned positions, as ESM-1b."""

from tests.parity.harness import cases

PAD = 1
BASE = {
    "vocab_size": 33,
    "mask_token_id": 9,
    "pad_token_id": PAD,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 30,
    "position_embedding_type": "rotary",
    "token_dropout": True,
}
LEARNED = {"position_embedding_type": "absolute"}
VARIANTS = {
    "learned": LEARNED,
    "one-layer": {"num_hidden_layers": 1},
    "deep": {"num_hidden_layers": 4},
    "one-head": {"num_attention_heads": 1},
    "eight-heads": {"hidden_size": 32, "num_attention_heads": 8},
    "wide": {"hidden_size": 48, "num_attention_heads": 4},
    "narrow": {"hidden_size": 16, "num_attention_heads": 2},
    "inner": {"intermediate_size": 96},
    "eps": {"layer_norm_eps": 1e-3},
    "theta": {"rope_theta": 100.0},
    "normed": {"emb_layer_norm_before": True},
    "normed-learned": {"emb_layer_norm_before": True, **LEARNED},
    "masks-are-tokens": {"token_dropout": False},
    "masks-are-tokens-learned": {"token_dropout": False, **LEARNED},
    "another-mask": {"mask_token_id": 32},
    "dropouts": {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3},
    "long": {"max_position_embeddings": 600},
    "short-learned": {"max_position_embeddings": 10, **LEARNED},
    "untied": {"tie_word_embeddings": False},
    "large-vocabulary": {"vocab_size": 300},
    "few-words": {"vocab_size": 12},
}
CASES = [
    *cases("esm", "EsmForMaskedLM", BASE, VARIANTS, pad=PAD),
    *cases("esm", "EsmForMaskedLM", {**BASE, **LEARNED, "pad_token_id": 3}, {"far": {}}, pad=3)[1:],
    *cases("esm", "EsmModel", BASE, {"learned": LEARNED}, pad=PAD),
    *cases("esm", "EsmForSequenceClassification", BASE, {"labels": {"num_labels": 3}}, pad=PAD),
    *cases("esm", "EsmForTokenClassification", BASE, {"labels": {"num_labels": 5}}, pad=PAD),
]
