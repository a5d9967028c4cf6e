"""Llama's blocks under other names and defaults, and families whose code lies beside their checkpoints."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from clearhead.checkpoints.families.angles import SCALINGS, WITH_LONG, modern, rotary, windowed_layers, windows
from clearhead.checkpoints.families.decoders.llama import BIASES, LLAMA_CONSTANTS, llama_like
from clearhead.checkpoints.families.decoders.two_kinds import cohere_rules, olmo_rules
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.mixtures.deepseek import branch_scale, logit_scale
from clearhead.checkpoints.families.shared import (
    FULL,
    LOCAL,
    MOST_LAYERS,
    bare,
    bias,
    by_layer_types,
    decoder_language,
    qkv_by_head,
    sizes,
)
from clearhead.checkpoints.weights.fields import Alias, Only, Values, computed, factor, ignored, only, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, modules, sides, split
from clearhead.config import ModelConfig

# Kyutai 2025. Its output matrix of attention has no bias and the width of the network.
HELIUM = llama_like(
    "helium",
    "Helium",
    bias("attention_bias", "qkv"),
    BIASES[1],
    rules=cohere_rules,
    n_classes=4,
    vocab_size=48_000,
    hidden_size=2560,
    intermediate_size=7040,
    num_hidden_layers=24,
    num_attention_heads=20,
    num_key_value_heads=20,
    head_dim=128,
    rms_norm_eps=1e-8,
    angles=rotary(max_length=4096, theta=100_000.0),
)

# Baidu 2025.
ERNIE_4_5 = llama_like(
    "ernie4_5",
    "Ernie4_5",
    bias("use_bias", "qkv", "out", "ffn"),
    rules=cohere_rules,
    n_classes=2,
    tied=True,
    vocab_size=103_424,
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=18,
    num_attention_heads=16,
    num_key_value_heads=2,
    head_dim=128,
    rms_norm_eps=1e-5,
    angles=rotary(max_length=131_072, theta=500_000.0),
)

# --- layers with a window ----------------------------------------------------------------------------------------


def _rotated(_: Any, values: Values) -> list[int] | None:
    """The layers that have positions, which are those with a window; None if all layers have positions."""
    local = windowed_layers(values, 4)
    return None if values["sliding_window"] is None or len(local) == values["num_hidden_layers"] else local


# LG AI Research 2025. Its window is written as it is.
EXAONE_4 = llama_like(
    "exaone4",
    "Exaone4",
    *(replace(one, write=lambda window, _: window) if one.theirs == "sliding_window" else one for one in windows(4)),
    by_layer_types("rotary_layers", _rotated),
    constants={"decoder.norm_place": "branch", "decoder.qk_norm": True},
    rules=olmo_rules,
    vocab_size=102_400,
    intermediate_size=16_384,
    num_key_value_heads=32,
    rms_norm_eps=1e-5,
    max_length=2048,
)


def _ministral_kinds(document: dict[str, Any]) -> dict[str, Any]:
    """Where no list says otherwise, every layer has the window."""
    document = modern(document)
    if document.get("layer_types") is None:
        n = document.get("num_hidden_layers", 32)
        kind = FULL if document.get("sliding_window", 4096) is None else LOCAL
        document["layer_types"] = [kind] * min(n, MOST_LAYERS) if type(n) is int else None
    return document


# Mistral AI 2024.
MINISTRAL = llama_like(
    "ministral",
    "Ministral",
    *windows(every=1),
    modernize=_ministral_kinds,
    intermediate_size=14_336,
    num_key_value_heads=8,
    max_length=131_072,
)

# --- families whose code lies beside their checkpoints -------------------------------------------------------------

published = partial(llama_like, n_classes=2, read_only=True)


# --- InternLM2 (Cai et al. 2024) -------------------------------------------------------------------------------------


def _internlm_rules(config: ModelConfig) -> Sequence[Rule]:
    names = {
        "tok_embeddings": "embed.tokens",
        "norm": "final_norm",
        "attention.wo": "attn.out",
        "attention_norm": "attn_norm",
        "ffn_norm": "ffn_norm",
        "feed_forward.w1": "ffn.gate",
        "feed_forward.w3": "ffn.up",
        "feed_forward.w2": "ffn.down",
    }
    return (
        *modules("decoder", "layers.{i}", names),
        qkv_by_head("layers.{i}.attention.wqkv", config),
        ignore("layers.{i}.attention.rotary_emb.inv_freq"),
    )


INTERNLM2 = published(
    "internlm2",
    "InternLM2",
    bias("bias", "qkv", "out", default=True),
    ignored("attn_implementation"),
    rules=_internlm_rules,
    words=decoder_language("InternLM2ForCausalLM", "model.", tied=False, names=("output",)),
    vocab_size=103_168,
    intermediate_size=11_008,
    max_length=2048,
)

# --- MiniCPM (Hu et al. 2024) ----------------------------------------------------------------------------------------


MINICPM = published(
    "minicpm",
    "MiniCPM",
    factor("scale_emb", "decoder.input.factor"),
    branch_scale(1),
    BIASES[0],
    ignored("dim_model_base", "mup_denominator"),
    Only("num_experts", 0),
    words=decoder_language("MiniCPMForCausalLM", "model.", logit_scale(1)),
    intermediate_size=11_008,
    angles=rotary(max_length=2048, scalings={**SCALINGS, **WITH_LONG}),
)

# --- EXAONE 3 (LG AI Research 2024) ----------------------------------------------------------------------------------

EXAONE_NAMES = {
    "wte": "embed.tokens",
    "ln_f": "final_norm",
    "attn.attention.q_proj": "attn.q",
    "attn.attention.k_proj": "attn.k",
    "attn.attention.v_proj": "attn.v",
    "attn.attention.out_proj": "attn.out",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "mlp.c_fc_0": "ffn.gate",
    "mlp.c_fc_1": "ffn.up",
    "mlp.c_proj": "ffn.down",
}
EXAONE = published(
    "exaone",
    "Exaone",
    Alias("num_layers", of="num_hidden_layers"),
    Alias("activation_function", of="hidden_act"),
    *only(embed_dropout=0.0, resid_dropout=0.0),
    rules=lambda _: (*modules("decoder", "h.{i}", EXAONE_NAMES), ignore("rotary.inv_freq")),
    words=decoder_language("ExaoneForCausalLM", "transformer.", tied=False),
    vocab_size=102_400,
    hidden_size=2048,
    intermediate_size=8192,
    layer_norm_epsilon=1e-5,
    max_length=2048,
)

# --- Qwen (Bai et al. 2023) ------------------------------------------------------------------------------------------


def _qwen_rules(_: ModelConfig) -> Sequence[Rule]:
    names = {
        "wte": "embed.tokens",
        "ln_f": "final_norm",
        "attn.c_proj": "attn.out",
        "ln_1": "attn_norm",
        "ln_2": "ffn_norm",
        "mlp.w1": "ffn.up",
        "mlp.w2": "ffn.gate",
        "mlp.c_proj": "ffn.down",
    }
    qkv = split("h.{i}.attn.c_attn.{p}", sides("decoder"))
    return *modules("decoder", "h.{i}", names), qkv, ignore("rotary_emb.inv_freq")


def _qwen_positions(base: float, values: Values) -> dict[str, Any]:
    """Texts longer than `seq_length` have another base, and scores that grow with the logarithm of the position."""
    length = values["seq_length"]
    grows = values["use_dynamic_ntk"] or values["use_logn_attn"]
    scaling = {"kind": "dynamic", "factor": 1.0, "original_length": length} if grows else None
    return {"kind": "rotary", "base": base, "scaling": scaling, "trained_length": length}


QWEN = Family(
    model_type="qwen",
    constants=LLAMA_CONSTANTS | {"decoder.qkv_bias": True, "decoder.activation": "silu"},
    fields=(
        *sizes(
            "decoder",
            vocab_size=151_936,
            hidden_size=4096,
            num_hidden_layers=32,
            num_attention_heads=32,
            layer_norm_epsilon=1e-6,
            initializer_range=0.02,
            emb_dropout_prob=0.0,
            attn_dropout_prob=0.0,
        ),
        same("kv_channels", "decoder.d_head", default=128),
        computed("intermediate_size", "decoder.d_ff", read=lambda both, _: both // 2, default=22_016),
        computed("rotary_emb_base", "decoder.positions", read=_qwen_positions, default=10_000, like=1.0),
        *(computed(name, default=True) for name in ("use_dynamic_ntk", "use_logn_attn")),
        computed("seq_length", default=8192),
        *only(no_bias=True, rotary_pct=1.0, scale_attn_weights=True),
        ignored("use_flash_attn", "bf16", "fp16", "fp32", "onnx_safe", "softmax_in_fp32", "max_position_embeddings"),
        ignored("use_cache_quantization", "use_cache_kernel"),
    ),
    rules=_qwen_rules,
    heads=(decoder_language("QWenLMHeadModel", "transformer.", tied=False), bare("QWenModel")),
    read_only=True,
)
