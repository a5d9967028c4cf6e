"""Families whose code lies beside the checkpoints and not in the reference library. They are read, and written as the
family of that library which computes the same: InternLM2 and EXAONE 3 as Llama, MiniCPM as Granite, Qwen as Qwen2, GTE
as it was published as GTE.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

from clearhead.checkpoints.families.decoders.llama import CONSTANTS, heads, sizes
from clearhead.checkpoints.families.decoders.llama import rules as llama_rules
from clearhead.checkpoints.families.encoders.rotary_berts import GTE
from clearhead.checkpoints.families.family import Family, HeadMap, prefixed
from clearhead.checkpoints.families.rotary import SCALINGS, WITH_LONG, modern, rotary
from clearhead.checkpoints.families.shared import output_matrix
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import (
    ANOTHER,
    Alias,
    FieldRule,
    Only,
    Values,
    computed,
    ignored,
    inherited,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, ignore, leave_out, rename, split
from clearhead.checkpoints.weights.rows import fused
from clearhead.config import ModelConfig
from clearhead.errors import UserError


def _named(embedding: str, block: str, last: str, names: Mapping[str, str]) -> tuple[Rule, ...]:
    """The token table, the last norm, and the blocks' maps and norms by their names -> ours."""
    ours = "decoder.blocks.{i}"
    return (
        rename(f"{embedding}.weight", "decoder.embed.tokens.weight"),
        *(rename(f"{block}.{there}.{{p}}", f"{ours}.{here}.{{p}}") for there, here in names.items()),
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


_WORDS, _BARE, *_ = heads("InternLM2")
INTERNLM2 = Family(
    model_type="internlm2",
    constants=CONSTANTS,
    fields=(
        *sizes(vocab_size=103_168, intermediate_size=11_008, kv_heads=None, max_length=2048),
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


_MINICPM_WORDS, _MINICPM_BARE, *_ = heads("MiniCPM", tied=True)
MINICPM = Family(
    model_type="minicpm",
    constants=CONSTANTS,
    fields=(
        *sizes(
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
    constants=CONSTANTS,
    fields=(
        *sizes(
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
    heads=(replace(heads("Exaone")[0], prefix="transformer."), heads("Exaone")[1]),
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
    constants=CONSTANTS | {"decoder.qkv_bias": True, "decoder.activation": "silu"},
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
    heads=(replace(heads("QWen")[0], architecture="QWenLMHeadModel", prefix="transformer."), heads("QWen")[1]),
    read_only=True,
)


# --- GTE as it was published (Zhang et al. 2024) ---------------------------------------------------------------------


def _angles(document: dict[str, Any]) -> dict[str, Any]:
    """Their rope_scaling of the kind ntk: another base, and all angles divided by factor^(2 / width)."""
    scaling, theta = document.pop("rope_scaling", None), document.pop("rope_theta", 10_000.0)
    parameters: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    if isinstance(scaling, dict):
        if scaling.get("type") != "ntk" or scaling.get("mixed_b") is not None:
            raise UserError(f"rope_scaling: expected the type ntk without mixed_b, got {short(scaling)}; {ANOTHER}")
        factor, n_heads = scaling.get("factor", 1.0), document.get("num_attention_heads", 12)
        sizes = (theta, factor, document.get("hidden_size", 768), n_heads)
        if not all(type(one) in (int, float) and 0 < one < 1e9 for one in sizes) or sizes[2] < n_heads:
            raise UserError(f"rope_scaling: expected numbers above 0, got {short(scaling)}; {ANOTHER}")
        width = sizes[2] // n_heads
        parameters = {"rope_type": "linear", "rope_theta": theta * factor, "factor": factor ** (2 / width)}
    return document | {"rope_parameters": parameters}


def _published(head: HeadMap) -> HeadMap:
    """The class under its published name. A checkpoint without a head may have those of another class in it."""
    name = head.architecture.replace("Gte", "New")
    if head.prefix:
        return replace(head, architecture=name, prefix="new.")
    unread = leave_out("classifier.{p}", "lm_head.{a}.{p}", because="the config names the class without a head")
    rules = head.rules

    def both(config: ModelConfig) -> Sequence[Rule]:
        return (*rules(config), unread, *(prefixed(rule, "new.") for rule in (*GTE.rules(config), *rules(config))))

    return replace(head, architecture=name, rules=both, also_first=True)


NEW_FIELDS: tuple[FieldRule, ...] = (
    Only("position_embedding_type", "rope"),
    Only("layer_norm_type", "layer_norm"),
    Only("logn_attention_scale", False),
    Only("logn_attention_clip1", False),
    ignored("pack_qkv", "unpad_inputs", "use_memory_efficient_attention"),
    same("vocab_size", "encoder.input.vocab_size", default=30_528),
)
NEW = replace(
    GTE,
    model_type="new",
    fields=(
        *NEW_FIELDS,
        *(one for one in GTE.fields if getattr(one, "theirs", "") not in ("position_embedding_type", "vocab_size")),
    ),
    heads=tuple(map(_published, GTE.heads)),
    modernize=_angles,
    read_only=True,
)

ALL = (INTERNLM2, MINICPM, EXAONE, QWEN, NEW)
