"""Llama's blocks under other names and defaults, and families whose code lies beside their checkpoints."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

from clearhead.checkpoints.families.angles import SCALINGS, WITH_LONG, modern, rotary, windowed_layers, windows
from clearhead.checkpoints.families.decoders.llama import (
    BIASES,
    LLAMA_CONSTANTS,
    llama_heads,
    llama_like,
    llama_rules,
    llama_sizes,
)
from clearhead.checkpoints.families.decoders.llama_kin import UNGATED
from clearhead.checkpoints.families.decoders.two_kinds import cohere_rules, olmo_rules
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.shared import LOCAL, MOST_LAYERS, by_layer_types, output_matrix
from clearhead.checkpoints.weights.fields import (
    Alias,
    Only,
    Values,
    computed,
    ignored,
    inherited,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, fused, ignore, rename, renames, split
from clearhead.config import ModelConfig

# ByteDance 2025.
SEED_OSS = llama_like(
    "seed_oss",
    "SeedOss",
    inherited("attention_bias", "decoder.qkv_bias", of="bias", default=True),
    inherited("attention_out_bias", "decoder.out_bias", of="bias", default=False),
    BIASES[1],
    same("residual_dropout", "decoder.dropout", default=0.1),
    constants={"decoder.embed_dropout": 0.0},
    vocab_size=155_136,
    intermediate_size=27_648,
    layers=64,
    n_heads=80,
    kv_heads=8,
    head_dim=128,
    attn_dropout=0.1,
    max_length=524_288,
)

# Kyutai 2025. Its output matrix of attention has no bias and the width of the network.
HELIUM = llama_like(
    "helium",
    "Helium",
    inherited("attention_bias", "decoder.qkv_bias", of="bias", default=False),
    BIASES[1],
    rules=cohere_rules,
    n_classes=4,
    vocab_size=48_000,
    hidden_size=2560,
    intermediate_size=7040,
    layers=24,
    n_heads=20,
    kv_heads=20,
    head_dim=128,
    eps=1e-8,
    angles=rotary(max_length=4096, theta=100_000.0),
)

# Baidu 2025.
ERNIE_4_5 = llama_like(
    "ernie4_5",
    "Ernie4_5",
    inherited("use_bias", "decoder.qkv_bias", "decoder.out_bias", "decoder.ffn_bias", of="bias", default=False),
    rules=cohere_rules,
    n_classes=2,
    tied=True,
    vocab_size=103_424,
    hidden_size=1024,
    intermediate_size=3072,
    layers=18,
    n_heads=16,
    kv_heads=2,
    head_dim=128,
    eps=1e-5,
    angles=rotary(max_length=131_072, theta=500_000.0),
)

# --- layers with a window ----------------------------------------------------------------------------------------


def _rotated(_: Any, values: Values) -> list[int] | None:
    """With a window somewhere, the layers without one have no positions."""
    local = windowed_layers(values, 4)
    return None if values["sliding_window"] is None or len(local) == values["num_hidden_layers"] else local


def _as_said(window: int | None, _: Values) -> int | None:
    return window


# LG AI Research 2025.
EXAONE_4 = llama_like(
    "exaone4",
    "Exaone4",
    *(replace(one, write=_as_said) if one.theirs == "sliding_window" else one for one in windows(every=4)),
    by_layer_types("rotary_layers", _rotated),
    constants={"decoder.norm_place": "branch", "decoder.qk_norm": True},
    rules=olmo_rules,
    vocab_size=102_400,
    intermediate_size=16_384,
    kv_heads=32,
    eps=1e-5,
    max_length=2048,
)


def _ministral_kinds(document: dict[str, Any]) -> dict[str, Any]:
    """Where no list says otherwise, every layer has the window."""
    document = modern(document)
    if document.get("layer_types") is None:
        n = document.get("num_hidden_layers", 32)
        kind = "full_attention" if document.get("sliding_window", 4096) is None else LOCAL
        document["layer_types"] = [kind] * min(n, MOST_LAYERS) if type(n) is int else None
    return document


# Mistral AI 2024.
MINISTRAL = llama_like(
    "ministral",
    "Ministral",
    *windows(every=1),
    modernize=_ministral_kinds,
    intermediate_size=14_336,
    kv_heads=8,
    max_length=131_072,
)

# Inception 2025: LayerNorm, squared ReLU without a gate.
JAIS_2 = llama_like(
    "jais2",
    "Jais2",
    inherited("attention_bias", "decoder.qkv_bias", "decoder.out_bias", of="bias", default=True),
    inherited("mlp_bias", "decoder.ffn_bias", of="bias", default=True),
    constants=UNGATED,
    n_classes=2,
    vocab_size=150_272,
    hidden_size=3328,
    intermediate_size=26_624,
    n_heads=26,
    kv_heads=None,
    hidden_act="relu2",
    eps=1e-5,
    eps_field="layer_norm_eps",
    max_length=8192,
)


# --- families whose code lies beside their checkpoints -------------------------------------------------------------


def _named(embedding: str, block: str, last: str, names: Mapping[str, str]) -> tuple[Rule, ...]:
    """The token table, the last norm, and the blocks' maps and norms by their names -> ours."""
    ours = "decoder.blocks.{i}"
    return (
        rename(f"{embedding}.weight", "decoder.embed.tokens.weight"),
        *renames(block, ours, names),
        rename(f"{last}.{{p}}", "decoder.final_norm.{p}"),
    )


# --- InternLM2 (Cai et al. 2024) -------------------------------------------------------------------------------------


def _internlm_rules(config: ModelConfig) -> Sequence[Rule]:
    """One matrix holds, for each key head, its queries, its keys and its values in turn."""
    stack = config.output
    theirs, ours, width = "layers.{i}", "decoder.blocks.{i}", stack.head_width
    sides, rows = [f"{ours}.attn.{n}.{{p}}" for n in "qkv"], (stack.n_heads // stack.kv_heads * width, width, width)
    names = {
        "attention.wo": "attn.out",
        "attention_norm": "attn_norm",
        "ffn_norm": "ffn_norm",
        "feed_forward.w1": "ffn.gate",
        "feed_forward.w3": "ffn.up",
        "feed_forward.w2": "ffn.down",
    }
    return (
        *_named("tok_embeddings", theirs, "norm", names),
        fused(f"{theirs}.attention.wqkv.{{p}}", sides, rows=rows, groups=stack.kv_heads),
        ignore(f"{theirs}.attention.rotary_emb.inv_freq"),
    )


_WORDS, _BARE, *_ = llama_heads("InternLM2")
INTERNLM2 = Family(
    model_type="internlm2",
    constants=LLAMA_CONSTANTS,
    fields=(
        *llama_sizes(vocab_size=103_168, intermediate_size=11_008, kv_heads=None, max_length=2048),
        inherited("bias", "decoder.qkv_bias", "decoder.out_bias", of="bias", default=True),
        ignored("attn_implementation", "pretraining_tp"),
    ),
    rules=_internlm_rules,
    heads=(
        replace(_WORDS, rules=lambda config: (output_matrix("output.weight", config, "decoder.embed.tokens.weight"),)),
        _BARE,
    ),
    modernize=modern,
    read_only=True,
)

# --- MiniCPM (Hu et al. 2024) ----------------------------------------------------------------------------------------


def _branch(depth: float, values: Values) -> float:
    return depth / sqrt(values["num_hidden_layers"])


def _logits(base: int, values: Values) -> float:
    return base / values["hidden_size"]


_MINICPM_WORDS, _MINICPM_BARE, *_ = llama_heads("MiniCPM", tied=True)
MINICPM = Family(
    model_type="minicpm",
    constants=LLAMA_CONSTANTS,
    fields=(
        *llama_sizes(
            intermediate_size=11_008,
            kv_heads=None,
            angles=rotary(max_length=2048, scalings={**SCALINGS, **WITH_LONG}),
        ),
        computed("scale_emb", "decoder.input.factor", read=lambda factor, _: float(factor), default=1, like=1.0),
        computed("scale_depth", "decoder.branch_scale", read=_branch, default=1, like=1.0),
        inherited("attention_bias", "decoder.qkv_bias", "decoder.out_bias", of="bias", default=False),
        ignored("dim_model_base", "mup_denominator"),
        Only("num_experts", 0),
    ),
    rules=llama_rules,
    heads=(
        replace(
            _MINICPM_WORDS,
            fields=(
                *_MINICPM_WORDS.fields,
                computed("dim_model_base", "head.scale", read=_logits, default=1, like=1),
            ),
        ),
        _MINICPM_BARE,
    ),
    modernize=modern,
    read_only=True,
)

# --- EXAONE 3 (LG AI Research 2024) ----------------------------------------------------------------------------------


def _exaone_rules(_: ModelConfig) -> Sequence[Rule]:
    names = {
        **{f"attn.attention.{n}_proj": f"attn.{n}" for n in "qkv"},
        "attn.attention.out_proj": "attn.out",
        "ln_1": "attn_norm",
        "ln_2": "ffn_norm",
        "mlp.c_fc_0": "ffn.gate",
        "mlp.c_fc_1": "ffn.up",
        "mlp.c_proj": "ffn.down",
    }
    return *_named("wte", "h.{i}", "ln_f", names), ignore("rotary.inv_freq")


EXAONE = Family(
    model_type="exaone",
    constants=LLAMA_CONSTANTS,
    fields=(
        *llama_sizes(
            vocab_size=102_400,
            hidden_size=2048,
            intermediate_size=8192,
            kv_heads=None,
            eps=1e-5,
            eps_field="layer_norm_epsilon",
            max_length=2048,
        ),
        Alias("num_layers", of="num_hidden_layers"),
        Alias("activation_function", of="hidden_act"),
        Only("embed_dropout", 0.0),
        Only("resid_dropout", 0.0),
    ),
    rules=_exaone_rules,
    heads=(replace(llama_heads("Exaone")[0], prefix="transformer."), llama_heads("Exaone")[1]),
    modernize=modern,
    read_only=True,
)

# --- Qwen (Bai et al. 2023) ------------------------------------------------------------------------------------------


def _qwen_rules(_: ModelConfig) -> Sequence[Rule]:
    sides = [f"decoder.blocks.{{i}}.attn.{n}" for n in "qkv"]
    names = {
        "attn.c_proj": "attn.out",
        "ln_1": "attn_norm",
        "ln_2": "ffn_norm",
        "mlp.w1": "ffn.up",
        "mlp.w2": "ffn.gate",
        "mlp.c_proj": "ffn.down",
    }
    return (
        *_named("wte", "h.{i}", "ln_f", names),
        *(split(f"h.{{i}}.attn.c_attn.{p}", [f"{side}.{p}" for side in sides]) for p in ("weight", "bias")),
        ignore("rotary_emb.inv_freq"),
    )


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
        same("vocab_size", "decoder.input.vocab_size", default=151_936),
        same("hidden_size", "decoder.d_model", default=4096),
        same("num_hidden_layers", "decoder.n_layers", default=32),
        same("num_attention_heads", "decoder.n_heads", default=32),
        computed("intermediate_size", "decoder.d_ff", read=lambda both, _: both // 2, default=22_016, like=22_016),
        same("layer_norm_epsilon", "decoder.norm_eps", default=1e-6),
        same("kv_channels", "decoder.d_head", default=128),
        computed("rotary_emb_base", "decoder.positions", read=_qwen_positions, default=10_000, like=1.0),
        *(computed(name, default=True, like=True) for name in ("use_dynamic_ntk", "use_logn_attn")),
        computed("seq_length", default=8192, like=8192),
        same("initializer_range", "init.std", default=0.02),
        same("emb_dropout_prob", "decoder.embed_dropout", default=0.0),
        same("attn_dropout_prob", "decoder.attn_dropout", default=0.0),
        Only("no_bias", True),
        Only("rotary_pct", 1.0),
        Only("scale_attn_weights", True),
        ignored("use_flash_attn", "bf16", "fp16", "fp32", "onnx_safe", "softmax_in_fp32", "max_position_embeddings"),
        ignored("use_cache_quantization", "use_cache_kernel"),
    ),
    rules=_qwen_rules,
    heads=(
        replace(llama_heads("QWen")[0], architecture="QWenLMHeadModel", prefix="transformer."),
        llama_heads("QWen")[1],
    ),
    read_only=True,
)
