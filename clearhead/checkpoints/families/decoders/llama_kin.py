"""Llama's relatives: Granite (multipliers), SmolLM3 (layers without positions), StarCoder2 and Nemotron (LayerNorm, no
gate), StableLM (a part of each head rotated), Phi (one norm) and Phi-3 (fused matrices), GLM (neighbours rotate).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from clearhead.checkpoints.families.angles import ORIGINAL, WITH_LONG, modern, rotary
from clearhead.checkpoints.families.decoders.fused import parallel
from clearhead.checkpoints.families.decoders.llama import BIASES, llama_like, renamed
from clearhead.checkpoints.families.shared import (
    FULL,
    MOST_LAYERS,
    bias,
    decoder_language,
    neighbours,
    sizes,
    width_of,
)
from clearhead.checkpoints.weights.fields import (
    Only,
    Values,
    computed,
    factor,
    ignored,
    implied,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, fused, sides
from clearhead.config import ModelConfig

# --- multipliers (IBM 2024) ------------------------------------------------------------------------------------------

GRANITE_FIELDS = (
    factor("embedding_multiplier", "decoder.input.factor"),
    factor("residual_multiplier", "decoder.branch_scale"),
    computed(
        "attention_multiplier",
        "decoder.attn_scale",
        write=lambda scale, ours: scale or width_of(ours["decoder"]) ** -0.5,
        default=1.0,
    ),
    ignored("logits_scaling"),
)
granite_like = partial(llama_like, intermediate_size=11_008, max_length=2048, n_classes=2)
GRANITE_WORDS = factor("logits_scaling", "head.scale", inverse=True)
GRANITE = granite_like(
    "granite",
    "Granite",
    *BIASES,
    *GRANITE_FIELDS,
    words=decoder_language("GraniteForCausalLM", "model.", GRANITE_WORDS, tied=False),
)


# --- layers without positions (Bakouch et al. 2025) ------------------------------------------------------------------


def _rotary(said: Sequence[int] | None, values: Values) -> list[int] | None:
    """The layers that the list marks with 1; by default all but every `no_rope_layer_interval`-th."""
    n, every = values["num_hidden_layers"], values["no_rope_layer_interval"]
    marks = [int((i + 1) % every != 0) for i in range(min(n, MOST_LAYERS))] if said is None else [*said]
    if len(marks) != n:
        raise ValueError(f"{len(marks)} for num_hidden_layers={n}")
    return None if all(marks) else [i for i, mark in enumerate(marks) if mark]


def _marks(layers: Sequence[int] | None, ours: Values) -> list[int]:
    return [int(layers is None or i in layers) for i in range(ours["decoder"]["n_layers"])]


SMOLLM3 = llama_like(
    "smollm3",
    "SmolLM3",
    *BIASES,
    computed("no_rope_layers", "decoder.rotary_layers", read=_rotary, write=_marks, default=None),
    computed("no_rope_layer_interval", write=lambda *_: 4, default=4),
    Only("use_sliding_window", False),
    implied(
        "layer_types",
        lambda values: [FULL] * min(values["num_hidden_layers"], MOST_LAYERS),
        write=lambda ours: [FULL] * ours["decoder"]["n_layers"],
        what="which follows from use_sliding_window",
    ),
    tied=True,
    vocab_size=128_256,
    hidden_size=2048,
    intermediate_size=11_008,
    num_hidden_layers=36,
    num_attention_heads=16,
    num_key_value_heads=4,
    angles=rotary(max_length=32_768, theta=2_000_000.0),
)

# --- LayerNorm, no gate ----------------------------------------------------------------------------------------------

UNGATED = {"decoder.norm": "layer", "decoder.norm_bias": True, "decoder.gated": False}

# Lozhkov et al. 2024.
STARCODER2 = llama_like(
    "starcoder2",
    "Starcoder2",
    bias("use_bias", "qkv", "out", "ffn", default=True),
    computed("sliding_window", "decoder.window", default=None),
    *sizes("decoder", residual_dropout=0.0, embedding_dropout=0.0),
    ignored("mlp_type", "norm_type"),
    constants=UNGATED,
    rules=lambda _: renamed({"mlp.c_fc": "ffn.up", "mlp.c_proj": "ffn.down"}),
    n_classes=4,
    tied=True,
    vocab_size=49_152,
    hidden_size=3072,
    intermediate_size=12_288,
    num_hidden_layers=30,
    num_attention_heads=24,
    num_key_value_heads=2,
    hidden_act="gelu_pytorch_tanh",
    norm_epsilon=1e-5,
    initializer_range=0.018042,
    max_length=4096,
)

# Parmar et al. 2024: squared ReLU, and norms that multiply by 1 + weight.
NEMOTRON = llama_like(
    "nemotron",
    "Nemotron",
    *BIASES,
    constants=UNGATED | {"decoder.norm_gain": "one_plus_weight"},
    vocab_size=256_000,
    hidden_size=6144,
    intermediate_size=24_576,
    num_attention_heads=48,
    hidden_act="relu2",
    norm_eps=1e-5,
    initializer_range=0.0134,
    angles=rotary(max_length=4096, fraction=0.5),
)

# --- a part of each head (Bellagente et al. 2024) --------------------------------------------------------------------

STABLELM = llama_like(
    "stablelm",
    "StableLm",
    bias("use_qkv_bias", "qkv"),
    parallel("one_norm", default=False),
    Only("qk_layernorm", False),
    constants={"decoder.norm": "layer", "decoder.norm_bias": True, "decoder.embed_dropout": 0.0},
    n_classes=4,
    vocab_size=50_304,
    hidden_size=2560,
    intermediate_size=6912,
    num_key_value_heads=32,
    hidden_dropout=0.0,
    layer_norm_eps=1e-5,
    angles=rotary(max_length=4096, fraction=0.25),
)


# --- Phi (Li et al. 2023) and Phi-3 (Abdin et al. 2024) ------------------------------------------------------------


PHI_NAMES = {
    "self_attn.dense": "attn.out",
    "self_attn.q_layernorm": "attn.q_norm",
    "self_attn.k_layernorm": "attn.k_norm",
    "mlp.fc1": "ffn.up",
    "mlp.fc2": "ffn.down",
    "final_layernorm": "final_norm",
}


def fused_rules(config: ModelConfig) -> Sequence[Rule]:
    """Queries, keys and values in one matrix; gate and up in another."""
    stack = config.output
    rows = [n * stack.head_width for n in (stack.n_heads, stack.kv_heads, stack.kv_heads)]
    qkv = fused("layers.{i}.self_attn.qkv_proj.{p}", sides("decoder"), rows=rows)
    return (*renamed({}, but=("attn.q", "attn.k", "attn.v", "ffn.gate", "ffn.up")), qkv, gate_and_up(config))


def gate_and_up(config: ModelConfig) -> Rule:
    """The gate above the up matrix."""
    ours = [f"decoder.blocks.{{i}}.ffn.{name}.{{p}}" for name in ("gate", "up")]
    return fused("layers.{i}.mlp.gate_up_proj.{p}", ours, rows=[config.output.d_ff] * 2)


PHI = llama_like(
    "phi",
    "Phi",
    same("qk_layernorm", "decoder.qk_norm", default=False),
    constants={"decoder.norm": "layer", "decoder.gated": False, "decoder.bias": True, "decoder.parallel": "one_norm"},
    rules=lambda _: renamed(PHI_NAMES, but=("ffn.gate", "ffn_norm")),
    words=decoder_language("PhiForCausalLM", "model.", tied=False, bias=True),
    n_classes=4,
    vocab_size=51_200,
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=24,
    hidden_act="gelu_new",
    layer_norm_eps=1e-5,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    angles=rotary(max_length=2048, fraction=0.5),
)


def _phi3_modern(document: dict[str, Any]) -> dict[str, Any]:
    """Earlier names of the scaling."""
    document = modern(document)
    said = document["rope_parameters"]
    if isinstance(said, dict):
        kind = said.get("rope_type", said.get("type"))
        document["rope_parameters"] = {**said, "rope_type": "longrope"} if kind in ("su", "yarn") else said
    return document


def _original(_: Any, ours: Values) -> int:
    scaling = ours["decoder"]["positions"]["scaling"]
    return 4096 if scaling is None else scaling["original_length"]


PHI3 = llama_like(
    "phi3",
    "Phi3",
    computed(ORIGINAL, write=_original, default=4096),
    computed("sliding_window", "decoder.window", default=None),
    ignored("embd_pdrop"),
    constants={"decoder.embed_dropout": 0.0},
    rules=fused_rules,
    n_classes=4,
    modernize=_phi3_modern,
    vocab_size=32_064,
    hidden_size=3072,
    intermediate_size=8192,
    rms_norm_eps=1e-5,
    resid_pdrop=0.0,
    angles=rotary(max_length=4096, fraction=1.0, scalings=WITH_LONG),
)


# --- GLM-4 (GLM Team 2024 and 2025) --------------------------------------------------------------------------------


def glm_rules(config: ModelConfig, **norms: str) -> Sequence[Rule]:
    """Llama's, with neighbours rotated and the gate above the up matrix. `norms` are those after the branches."""
    return [gate_and_up(config), *neighbours(renamed(norms, but=("ffn.gate", "ffn.up")), config)]


glm_like = partial(
    llama_like,
    n_classes=4,
    vocab_size=151_552,
    intermediate_size=13_696,
    num_hidden_layers=40,
    num_key_value_heads=2,
    head_dim=128,
    rms_norm_eps=0.00000015625,
    angles=rotary(max_length=131_072, fraction=0.5),
)
GLM_BIAS = bias("attention_bias", "qkv", default=True)
GLM = glm_like("glm", "Glm", GLM_BIAS, rules=glm_rules)
GLM4 = glm_like(
    "glm4",
    "Glm4",
    GLM_BIAS,
    rules=partial(glm_rules, post_self_attn_layernorm="attn_out_norm", post_mlp_layernorm="ffn_out_norm"),
    constants={"decoder.norm_place": "sandwich"},
)
