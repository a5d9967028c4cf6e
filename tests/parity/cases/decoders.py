"""The configurations of the decoders that share most of their fields with GPT-2, GPT-NeoX or Llama."""

from collections.abc import Mapping
from typing import Any

from tests.parity.harness import Case, cases

Changes = Mapping[str, Mapping[str, Any]]

# --- fields under the names that most configs have -------------------------------------------------------------------

BASE = {
    "vocab_size": 60,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "max_position_embeddings": 32,
}
SIZES: Changes = {
    "one-layer": {"num_hidden_layers": 1},
    "deep": {"num_hidden_layers": 5},
    "one-head": {"num_attention_heads": 1},
    "narrow-inner": {"intermediate_size": 9},
    "large-vocabulary": {"vocab_size": 301},
    "wide": {"hidden_size": 48, "num_attention_heads": 6},
    "eight-heads": {"hidden_size": 64, "num_attention_heads": 8},
}
ACTS: Changes = {
    "relu": {"hidden_act": "relu"},
    "gelu": {"hidden_act": "gelu"},
    "silu": {"hidden_act": "silu"},
    "relu2": {"hidden_act": "relu2"},
    "tanh-gelu": {"hidden_act": "gelu_pytorch_tanh"},
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 100.0}
WAVES = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 50.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
LINEAR = {"rope_type": "linear", "factor": 2.5, "rope_theta": 100.0}
ANGLES: Changes = {
    "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "linear": {"rope_parameters": LINEAR},
    "yarn": {"rope_parameters": YARN},
    "llama3": {"rope_parameters": WAVES},
    "older-theta": {"rope_theta": 300.0},
}


def part(share: float, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": share, **more}}


PARTS: Changes = {
    "half": part(0.5),
    "three-quarters": part(0.75),
    "all": part(1.0),
    "part-linear": part(0.5, rope_type="linear", factor=2.5),
    "part-yarn": part(0.5, rope_type="yarn", factor=4.0, original_max_position_embeddings=8),
    "part-llama3": part(0.75, **{name: value for name, value in WAVES.items() if name != "rope_theta"}),
    "older-part": {"rope_theta": 300.0, "partial_rotary_factor": 0.25},
}
GROUPS: Changes = {
    "grouped": {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2},
    "multi-query": {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 1},
}
WIDTHS: Changes = {
    "wide-heads": {"head_dim": 16, "num_key_value_heads": 1},
    "narrow-heads": {"head_dim": 4, "num_key_value_heads": 3},
}
BIAS: Changes = {"attention-bias": {"attention_bias": True}, "no-attention-bias": {"attention_bias": False}}
TIES: Changes = {"tied": {"tie_word_embeddings": True}, "untied": {"tie_word_embeddings": False}}
RMS: Changes = {"eps": {"rms_norm_eps": 1e-3}}
LAYER: Changes = {"eps": {"layer_norm_eps": 1e-3}}
LABELS = {"labels": {"num_labels": 5}}


def family(
    name: str, words: str, base: Mapping[str, Any], *variants: Changes, heads: str = "bare class tags", pad: bool = True
) -> list[Case]:
    """All variants of the class with words, and the base of the others."""
    stem = words.removesuffix("ForCausalLM").removesuffix("LMHeadModel")
    others = {
        "bare": (f"{stem}Model", base, {}),
        "class": (f"{stem}ForSequenceClassification", {**base, "pad_token_id": 0}, LABELS),
        "tags": (f"{stem}ForTokenClassification", base, LABELS),
        "span": (f"{stem}ForQuestionAnswering", base, {}),
    }
    found = cases(name, words, base, {key: value for group in variants for key, value in group.items()})
    for kind in heads.split():
        found += cases(name, *others[kind])
    return found


ALL = "bare class tags span"
WHOLE = {**BASE, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

GPT_NEOX = family(
    "gpt_neox", "GPTNeoXForCausalLM", WHOLE, SIZES, ACTS, PARTS, BIAS, TIES, LAYER,
    {
        "one-after-the-other": {"use_parallel_residual": False},
        "older-names": {"rotary_pct": 0.5, "rotary_emb_base": 100.0},
        "dropouts": {"hidden_dropout": 0.2, "attention_dropout": 0.3},
    },
    heads=ALL,
)  # fmt: skip
PHI = family(
    "phi", "PhiForCausalLM", WHOLE, SIZES, ACTS, PARTS, TIES, LAYER, GROUPS,
    {"normed": {"qk_layernorm": True}, "dropouts": {"resid_pdrop": 0.2, "embd_pdrop": 0.3, "attention_dropout": 0.3}},
)  # fmt: skip
LONG = {
    "rope_type": "longrope", "rope_theta": 100.0, "short_factor": [1.0, 1.5, 2.0, 3.0],
    "long_factor": [2.0, 3.0, 5.0, 8.0], "original_max_position_embeddings": 16,
}  # fmt: skip
HALF_LONG = {**LONG, "partial_rotary_factor": 0.5, "short_factor": [1.1, 1.7], "long_factor": [2.0, 5.0]}
PHI3 = family(
    "phi3", "Phi3ForCausalLM", WHOLE, SIZES, ACTS, TIES, RMS, GROUPS,
    {name: value for name, value in PARTS.items() if name not in ("part-linear", "part-yarn", "part-llama3")},
    {
        "window": {"sliding_window": 3},
        "longrope": {"rope_parameters": LONG, "original_max_position_embeddings": 16},
        "longrope-part": {"rope_parameters": HALF_LONG, "original_max_position_embeddings": 16},
        "longrope-factor": {
            "rope_parameters": {**LONG, "attention_factor": 1.3}, "original_max_position_embeddings": 16
        },
        "dropouts": {"resid_pdrop": 0.2, "embd_pdrop": 0.3, "attention_dropout": 0.3},
    },
)  # fmt: skip
STABLELM = family(
    "stablelm", "StableLmForCausalLM", {**WHOLE, "num_key_value_heads": 3}, PARTS, ACTS, TIES, LAYER, GROUPS,
    {
        "one-layer": {"num_hidden_layers": 1},
        "deep": {"num_hidden_layers": 5},
        "large-vocabulary": {"vocab_size": 301},
        "biases": {"use_qkv_bias": True},
        "side-by-side": {"use_parallel_residual": True},
        "side-by-side-biases": {"use_parallel_residual": True, "use_qkv_bias": True},
    },
)  # fmt: skip
COHERE = family(
    "cohere", "CohereForCausalLM", WHOLE, SIZES, ACTS, ANGLES, TIES, BIAS, LAYER, GROUPS,
    {"scaled": {"logit_scale": 1.7}, "not-scaled": {"logit_scale": 1.0}},
    heads="bare",
)  # fmt: skip
F, L = "full_attention", "sliding_attention"
WINDOWS: Changes = {
    "deep": {"num_hidden_layers": 7},
    "named": {"num_hidden_layers": 3, "layer_types": [F, L, F]},
    "all-full": {"layer_types": [F, F]},
    "all-local": {"layer_types": [L, L]},
    "wide-window": {"sliding_window": 6, "num_hidden_layers": 5},
    "one-cell": {"sliding_window": 1},
}
COHERE2 = family(
    "cohere2", "Cohere2ForCausalLM", {**WHOLE, "sliding_window": 3, "num_hidden_layers": 5}, ACTS, ANGLES, TIES, BIAS,
    LAYER, GROUPS, {name: value for name, value in WINDOWS.items() if name not in ("all-full", "all-local")},
    {"all-local": {"layer_types": [L] * 5}},
    {"pattern": {"sliding_window_pattern": 2}, "one-head": {"num_attention_heads": 1}},
    heads="bare",
)  # fmt: skip
GEMMA = family(
    "gemma", "GemmaForCausalLM", {**WHOLE, "num_key_value_heads": 3, "head_dim": 8}, ACTS, ANGLES, TIES, BIAS, RMS,
    GROUPS, WIDTHS,
    {
        "one-layer": {"num_hidden_layers": 1},
        "deep": {"num_hidden_layers": 5},
        "large-vocabulary": {"vocab_size": 301},
        "narrow-inner": {"intermediate_size": 9},
    },
)  # fmt: skip
GEMMA2_ACTS = {name: {"hidden_activation": change["hidden_act"]} for name, change in ACTS.items()}
GEMMA2_BASE = {**WHOLE, "num_key_value_heads": 3, "head_dim": 8, "sliding_window": 3, "query_pre_attn_scalar": 8}
CAPS: Changes = {
    "score-cap": {"attn_logit_softcapping": 2.0},
    "no-caps": {"attn_logit_softcapping": None, "final_logit_softcapping": None},
    "cap": {"final_logit_softcapping": 3.0},
    "scale": {"query_pre_attn_scalar": 5},
}
GEMMA2 = family(
    "gemma2", "Gemma2ForCausalLM", GEMMA2_BASE, GEMMA2_ACTS, ANGLES, TIES, BIAS, RMS, GROUPS, WIDTHS, WINDOWS, CAPS
)  # fmt: skip
TWO_ANGLES: Changes = {
    "thetas": {
        "rope_parameters": {
            F: {"rope_type": "default", "rope_theta": 300.0},
            L: {"rope_type": "default", "rope_theta": 20.0},
        }
    },
    "full-linear": {"rope_parameters": {F: LINEAR, L: {"rope_type": "default", "rope_theta": 20.0}}},
    "full-yarn": {"rope_parameters": {F: YARN, L: {"rope_type": "default", "rope_theta": 20.0}}},
    "older-names": {
        "rope_theta": 300.0,
        "rope_local_base_freq": 20.0,
        "rope_scaling": {"rope_type": "linear", "factor": 4.0},
    },
}
GEMMA3_BASE = {**GEMMA2_BASE, "num_hidden_layers": 3, "layer_types": [L, F, L]}
GEMMA3 = [
    *family(
        "gemma3_text", "Gemma3ForCausalLM", GEMMA3_BASE, GEMMA2_ACTS, TWO_ANGLES, TIES, BIAS, RMS, GROUPS, WIDTHS,
        {name: value for name, value in CAPS.items() if name != "score-cap"},
        {
            "pattern": {"sliding_window_pattern": 2, "layer_types": None, "num_hidden_layers": 5},
            "default-pattern": {"layer_types": None, "num_hidden_layers": 7},
            "all-full": {"layer_types": [F, F, F]},
            "all-local": {"layer_types": [L, L, L]},
        },
        heads="",
    ),
    *cases("gemma3_text", "Gemma3TextModel", GEMMA3_BASE, {}),
]  # fmt: skip
GLM = family(
    "glm", "GlmForCausalLM", {**WHOLE, "num_key_value_heads": 3, "head_dim": 8}, ACTS, PARTS, TIES, BIAS,
    RMS, GROUPS, WIDTHS,
    {"one-layer": {"num_hidden_layers": 1}, "deep": {"num_hidden_layers": 5}, "large-vocabulary": {"vocab_size": 301}},
)  # fmt: skip
GLM4 = family(
    "glm4", "Glm4ForCausalLM", {**WHOLE, "num_key_value_heads": 3, "head_dim": 8}, ACTS, PARTS, TIES, BIAS,
    RMS, GROUPS, WIDTHS,
    {"one-layer": {"num_hidden_layers": 1}, "deep": {"num_hidden_layers": 5}, "large-vocabulary": {"vocab_size": 301}},
)  # fmt: skip
OLMO2 = family(
    "olmo2", "Olmo2ForCausalLM", WHOLE, SIZES, ACTS, ANGLES, TIES, BIAS, RMS, GROUPS, heads="bare class"
)  # fmt: skip
OLMO3 = family(
    "olmo3", "Olmo3ForCausalLM", {**WHOLE, "sliding_window": 3, "num_hidden_layers": 5}, ACTS, TIES, BIAS, RMS, GROUPS,
    {name: value for name, value in WINDOWS.items() if name not in ("all-full", "all-local")},
    {name: value for name, value in TWO_ANGLES.items() if name != "older-names"},
    {"theta": {"rope_theta": 300.0}, "one-head": {"num_attention_heads": 1}, "narrow-inner": {"intermediate_size": 9}},
    {"all-full": {"layer_types": [F] * 5}, "all-local": {"layer_types": [L] * 5}},
    heads="bare class",
)  # fmt: skip
MULTIPLIED = {
    "embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 2.0, "attention_multiplier": 0.3
}  # fmt: skip
GRANITE = family(
    "granite", "GraniteForCausalLM", {**WHOLE, **MULTIPLIED}, SIZES, ACTS, ANGLES, TIES, BIAS, RMS, GROUPS,
    {"plain": dict.fromkeys(MULTIPLIED, 1.0), "mlp-bias": {"mlp_bias": True}},
    {**{f"no-{n}": {n: 1.0} for n in MULTIPLIED}},
    heads="bare",
)  # fmt: skip
SMOLLM3 = family(
    "smollm3", "SmolLM3ForCausalLM", {**WHOLE, "num_hidden_layers": 5, "num_key_value_heads": 3}, ACTS, ANGLES,
    TIES, BIAS,
    RMS, GROUPS,
    {
        "interval": {"no_rope_layer_interval": 2},
        "named": {"no_rope_layers": [0, 1, 0, 1, 1]},
        "all-rotate": {"no_rope_layers": [1] * 5},
        "one-layer": {"num_hidden_layers": 1},
        "mlp-bias": {"mlp_bias": True},
        "narrow-inner": {"intermediate_size": 9},
    },
    heads=ALL,
)  # fmt: skip
STARCODER2 = family(
    "starcoder2", "Starcoder2ForCausalLM", {**WHOLE, "num_key_value_heads": 3}, ACTS, ANGLES, TIES, GROUPS,
    {
        "one-layer": {"num_hidden_layers": 1},
        "deep": {"num_hidden_layers": 5},
        "narrow-inner": {"intermediate_size": 9},
        "large-vocabulary": {"vocab_size": 301},
        "no-bias": {"use_bias": False},
        "window": {"sliding_window": 3},
        "eps": {"norm_epsilon": 1e-3},
        "dropouts": {"residual_dropout": 0.2, "embedding_dropout": 0.3, "attention_dropout": 0.3},
    },
)  # fmt: skip
NEMOTRON = family(
    "nemotron", "NemotronForCausalLM", {**WHOLE, "num_key_value_heads": 3}, ACTS, PARTS, TIES, BIAS, GROUPS, WIDTHS,
    {"one-layer": {"num_hidden_layers": 1}, "deep": {"num_hidden_layers": 5}, "large-vocabulary": {"vocab_size": 301}},
    {"eps": {"norm_eps": 1e-3}, "mlp-bias": {"mlp_bias": True}},
    heads=ALL,
)  # fmt: skip
FALCON_BASE = {name: value for name, value in WHOLE.items() if name != "intermediate_size"} | {"ffn_hidden_size": 40}
FALCON = family(
    "falcon", "FalconForCausalLM", FALCON_BASE, ANGLES, TIES,
    {
        "one-layer": {"num_hidden_layers": 1},
        "deep": {"num_hidden_layers": 5},
        "own-inner": {"ffn_hidden_size": None},
        "large-vocabulary": {"vocab_size": 301},
        "biases": {"bias": True},
        "multi-head": {"multi_query": False},
        "one-after-the-other": {"parallel_attn": False},
        "one-after-the-other-multi-head": {"parallel_attn": False, "multi_query": False, "bias": True},
        "newer": {"new_decoder_architecture": True, "num_kv_heads": 1},
        "newer-grouped": {
            "new_decoder_architecture": True, "num_kv_heads": 2, "num_attention_heads": 4, "hidden_size": 32
        },
        "newer-all": {"new_decoder_architecture": True, "bias": True},
        "newer-one-norm": {
            "new_decoder_architecture": True, "num_kv_heads": 2, "num_attention_heads": 4, "hidden_size": 32,
            "num_ln_in_parallel_attn": 1,
        },
        "relu": {"activation": "relu"},
        "eps": {"layer_norm_epsilon": 1e-3},
        "dropouts": {"hidden_dropout": 0.2, "attention_dropout": 0.3},
    },
    heads=ALL,
)  # fmt: skip

# --- fields under the names of GPT-2 ---------------------------------------------------------------------------------

GPT = {
    "vocab_size": 60,
    "n_positions": 32,
    "n_embd": 24,
    "n_layer": 2,
    "n_head": 3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GPT_SIZES: Changes = {
    "one-layer": {"n_layer": 1},
    "deep": {"n_layer": 5},
    "inner": {"n_inner": 40},
    "narrow-inner": {"n_inner": 8},
    "large-vocabulary": {"vocab_size": 301},
    "eps": {"layer_norm_epsilon": 1e-3},
    "relu": {"activation_function": "relu"},
    "gelu": {"activation_function": "gelu"},
    "silu": {"activation_function": "silu"},
    "tanh-gelu": {"activation_function": "gelu_pytorch_tanh"},
    "dropouts": {"resid_pdrop": 0.2, "embd_pdrop": 0.3, "attn_pdrop": 0.4},
    **TIES,
}
GPTJ = family(
    "gptj", "GPTJForCausalLM", {**GPT, "rotary_dim": 4}, GPT_SIZES,
    {
        "one-head": {"n_head": 1},
        "eight-heads": {"n_embd": 32, "n_head": 8, "rotary_dim": 2},
        "all-rotated": {"rotary_dim": 8},
        "two-rotated": {"rotary_dim": 2},
        "six-rotated": {"rotary_dim": 6},
        "odd-width": {"n_embd": 33, "rotary_dim": 6},
        "twenty-nine": {"n_embd": 98, "n_head": 2, "rotary_dim": 28},
        "named-otherwise": {"rotary_dim": 10, "n_embd": 36},
    },
    heads="bare class span",
)  # fmt: skip
CODEGEN = family(
    "codegen", "CodeGenForCausalLM", {**GPT, "n_embd": 32, "n_head": 4, "rotary_dim": 4}, GPT_SIZES,
    {
        "eight-heads": {"n_head": 8, "rotary_dim": 2},
        "twelve-heads": {"n_embd": 96, "n_head": 12, "rotary_dim": 6},
        "all-rotated": {"rotary_dim": 8},
        "two-rotated": {"rotary_dim": 2},
        "six-rotated": {"rotary_dim": 6},
        "odd-width": {"n_embd": 44, "rotary_dim": 6},
        "wide": {"n_embd": 64, "rotary_dim": 12},
    },
    heads="bare",
)  # fmt: skip
BIGCODE = family(
    "gpt_bigcode", "GPTBigCodeForCausalLM", GPT, GPT_SIZES,
    {
        "multi-head": {"multi_query": False},
        "multi-head-wide": {"multi_query": False, "n_embd": 48, "n_head": 4},
        "one-head": {"n_head": 1},
        "eight-heads": {"n_embd": 32, "n_head": 8},
        "not-scaled": {"scale_attn_weights": False},
        "softmax": {"attention_softmax_in_fp32": False},
        "short": {"n_positions": 7},
    },
)  # fmt: skip
NEO_BASE = {
    "vocab_size": 60, "hidden_size": 24, "num_layers": 2, "num_heads": 3, "attention_types": [[["global", "local"], 1]],
    "window_size": 3, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
NEO_ACTS = {name: change for name, change in GPT_SIZES.items() if "activation_function" in change}
GPT_NEO = family(
    "gpt_neo", "GPTNeoForCausalLM", NEO_BASE, NEO_ACTS, TIES,
    {
        "one-layer": {"num_layers": 1, "attention_types": [[["local"], 1]]},
        "deep": {"num_layers": 5, "attention_types": [[["global", "local"], 2], [["global"], 1]]},
        "all-global": {"attention_types": [[["global"], 2]]},
        "all-local": {"attention_types": [[["local"], 2]]},
        "local-first": {"attention_types": [[["local", "global"], 1]]},
        "wide-window": {"window_size": 6},
        "one-cell": {"window_size": 1},
        "inner": {"intermediate_size": 40},
        "narrow-inner": {"intermediate_size": 9},
        "one-head": {"num_heads": 1},
        "eight-heads": {"hidden_size": 32, "num_heads": 8},
        "eps": {"layer_norm_epsilon": 1e-3},
        "large-vocabulary": {"vocab_size": 301},
        "short": {"max_position_embeddings": 7},
        "dropouts": {"resid_dropout": 0.2, "embed_dropout": 0.3, "attention_dropout": 0.3},
    },
    heads=ALL,
)  # fmt: skip

# --- others ----------------------------------------------------------------------------------------------------------

OPT_BASE = {
    "vocab_size": 60, "hidden_size": 24, "ffn_dim": 40, "num_hidden_layers": 2, "num_attention_heads": 3,
    "max_position_embeddings": 32, "word_embed_proj_dim": 24, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
OPT = family(
    "opt", "OPTForCausalLM", OPT_BASE, TIES,
    {
        "one-layer": {"num_hidden_layers": 1},
        "deep": {"num_hidden_layers": 5},
        "one-head": {"num_attention_heads": 1},
        "eight-heads": {"hidden_size": 32, "num_attention_heads": 8, "word_embed_proj_dim": 32},
        "own-width": {"word_embed_proj_dim": None},
        "narrow-inner": {"ffn_dim": 9},
        "large-vocabulary": {"vocab_size": 301},
        "short": {"max_position_embeddings": 7},
        "norm-after": {"do_layer_norm_before": False},
        "norm-after-deep": {"do_layer_norm_before": False, "num_hidden_layers": 4},
        "norm-after-no-bias": {"do_layer_norm_before": False, "enable_bias": False},
        "no-final-norm": {"_remove_final_layer_norm": True},
        "no-bias": {"enable_bias": False},
        "gelu": {"activation_function": "gelu"},
        "tanh-gelu": {"activation_function": "gelu_new"},
        "silu": {"activation_function": "silu"},
        "relu2": {"activation_function": "relu2"},
        "dropouts": {"dropout": 0.2, "attention_dropout": 0.3, "layerdrop": 0.1},
    },
    heads="bare class span",
)  # fmt: skip
BLOOM_BASE = {
    "vocab_size": 60, "hidden_size": 24, "n_layer": 2, "n_head": 3,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
BLOOM = family(
    "bloom", "BloomForCausalLM", BLOOM_BASE, TIES,
    {
        "one-layer": {"n_layer": 1},
        "deep": {"n_layer": 5},
        "one-head": {"n_head": 1},
        "two-heads": {"n_head": 2},
        "four-heads": {"n_head": 4},
        "six-heads": {"n_head": 6},
        "eight-heads": {"n_head": 8},
        "twelve-heads": {"n_head": 12},
        "wide": {"hidden_size": 56, "n_head": 7},
        "narrow": {"hidden_size": 10, "n_head": 5},
        "odd": {"hidden_size": 21},
        "large-vocabulary": {"vocab_size": 301},
        "eps": {"layer_norm_epsilon": 1e-3},
        "older-width": {"n_embed": 30},
        "in-parts-said": {"pretraining_tp": 2},
        "other-names": {"num_hidden_layers": 3, "num_attention_heads": 4},
        "dropouts": {"hidden_dropout": 0.2, "attention_dropout": 0.3},
        "wide-eight": {"hidden_size": 64, "n_head": 8, "n_layer": 3},
    },
    heads=ALL,
)  # fmt: skip
MPT_BASE = {
    "vocab_size": 60, "d_model": 24, "n_layers": 2, "n_heads": 3,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "max_seq_len": 96,
}  # fmt: skip
MPT = family(
    "mpt", "MptForCausalLM", MPT_BASE, TIES,
    {
        "one-layer": {"n_layers": 1},
        "deep": {"n_layers": 5},
        "one-head": {"n_heads": 1},
        "two-heads": {"n_heads": 2},
        "four-heads": {"n_heads": 4},
        "six-heads": {"n_heads": 6},
        "eight-heads": {"n_heads": 8},
        "twelve-heads": {"n_heads": 12},
        "wide": {"d_model": 56, "n_heads": 7},
        "narrow": {"d_model": 10, "n_heads": 5},
        "odd": {"d_model": 21},
        "large-vocabulary": {"vocab_size": 301},
        "eps": {"layer_norm_epsilon": 1e-3},
        "scale": {"attn_config": {"softmax_scale": 0.3}},
        "flat": {"attn_config": {"softmax_scale": 0.01}, "n_heads": 4},
        "steep-six": {"attn_config": {"softmax_scale": 0.9}, "n_heads": 6},
        "not-learned": {"learned_pos_emb": False},
    },
    heads=ALL,
)  # fmt: skip

FAMILIES = [
    GPT_NEOX, GPTJ, CODEGEN, GPT_NEO, BIGCODE, OPT, BLOOM, MPT, FALCON, PHI, PHI3, GEMMA, GEMMA2, GEMMA3, COHERE,
    COHERE2,
    GLM, GLM4, OLMO2, OLMO3, GRANITE, SMOLLM3, STARCODER2, NEMOTRON, STABLELM,
]  # fmt: skip
CASES = [case for found in FAMILIES for case in found]
