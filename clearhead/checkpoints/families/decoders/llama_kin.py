"""Llama's relatives: Granite (multipliers), SmolLM3 (layers without positions), StarCoder2 and Nemotron (LayerNorm, no
gate), StableLM (a part of each head rotated), Phi (one norm) and Phi-3 (fused matrices), GLM (neighbours rotate).
"""

from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.angles import WITH_LONG, modern, rotary
from clearhead.checkpoints.families.decoders.fused import parallel
from clearhead.checkpoints.families.decoders.llama import (
    BIASES,
    LLAMA_CONSTANTS,
    llama_heads,
    llama_like,
    llama_rules,
    llama_sizes,
)
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.shared import MOST_LAYERS, decoder_heads, decoder_language
from clearhead.checkpoints.weights.fields import (
    Field,
    FieldRule,
    Only,
    Values,
    computed,
    ignored,
    implied,
    inherited,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, fused, ignore, paired, rename, renames
from clearhead.config import ModelConfig, Rotary

# --- multipliers (IBM 2024) ------------------------------------------------------------------------------------------


def _factor(theirs: str, ours: str, *, inverse: bool = False) -> Field:
    """A factor, or with `inverse` a divisor; 1 for none."""

    def turned(value: float) -> float:
        return 1 / value if inverse else value

    return computed(
        theirs,
        ours,
        read=lambda value, _: None if value == 1.0 else turned(float(value)),
        write=lambda value, _: 1.0 if value is None else turned(value),
        default=1.0,
        like=1.0,
    )


GRANITE = Family(
    model_type="granite",
    constants=LLAMA_CONSTANTS,
    fields=(
        *llama_sizes(intermediate_size=11_008, kv_heads=None, max_length=2048),
        *BIASES,
        _factor("embedding_multiplier", "decoder.input.factor"),
        _factor("residual_multiplier", "decoder.branch_scale"),
        computed(
            "attention_multiplier",
            "decoder.attn_scale",
            read=lambda scale, _: float(scale),
            write=lambda scale, ours: scale or _width(ours) ** -0.5,
            default=1.0,
            like=1.0,
        ),
        ignored("logits_scaling"),
    ),
    rules=llama_rules,
    heads=(
        decoder_language(
            "GraniteForCausalLM", "model.", _factor("logits_scaling", "head.scale", inverse=True), tied=False
        ),
        *decoder_heads("Granite", "model.", "bare"),
    ),
    modernize=modern,
)


def _width(ours: Values) -> int:
    stack = ours["decoder"]
    return stack["d_head"] or stack["d_model"] // stack["n_heads"]


# --- layers without positions (Bakouch et al. 2025) ------------------------------------------------------------------


def _rotary(said: Sequence[int] | None, values: Values) -> list[int] | None:
    """The layers that the list marks with 1; by default all but every `no_rope_layer_interval`-th."""
    n, every = values["num_hidden_layers"], values["no_rope_layer_interval"]
    marks = [int((i + 1) % every != 0) for i in range(min(n, MOST_LAYERS))] if said is None else [*said]
    if len(marks) != n:
        raise ValueError(f"{len(marks)} for num_hidden_layers={n}")
    return None if all(marks) else [i for i, mark in enumerate(marks) if mark]


def _marks(_: Any, ours: Values) -> list[int]:
    stack = ours["decoder"]
    layers = stack["rotary_layers"]
    return [int(layers is None or i in layers) for i in range(stack["n_layers"])]


def _full(values: Values) -> list[str]:
    return ["full_attention"] * min(values["num_hidden_layers"], MOST_LAYERS)


SMOLLM3 = llama_like(
    "smollm3",
    "SmolLM3",
    *BIASES,
    computed("no_rope_layers", "decoder.rotary_layers", read=_rotary, write=_marks, default=None),
    computed("no_rope_layer_interval", write=lambda *_: 4, default=4, like=4),
    Only("use_sliding_window", False),
    implied(
        "layer_types",
        _full,
        write=lambda ours: ["full_attention"] * ours["decoder"]["n_layers"],
        what="which follows from use_sliding_window",
    ),
    tied=True,
    vocab_size=128_256,
    hidden_size=2048,
    intermediate_size=11_008,
    layers=36,
    n_heads=16,
    kv_heads=4,
    angles=rotary(max_length=32_768, theta=2_000_000.0),
)

# --- LayerNorm, no gate ----------------------------------------------------------------------------------------------

UNGATED = LLAMA_CONSTANTS | {"decoder.norm": "layer", "decoder.norm_bias": True, "decoder.gated": False}


def _starcoder_rules(config: ModelConfig) -> Sequence[Rule]:
    mlp = {"c_fc": "up", "c_proj": "down"}
    return (
        *(rule for rule in llama_rules(config) if ".mlp." not in rule.theirs[0]),
        *renames("layers.{i}.mlp", "decoder.blocks.{i}.ffn", mlp),
    )


# Lozhkov et al. 2024.
STARCODER2 = llama_like(
    "starcoder2",
    "Starcoder2",
    inherited("use_bias", "decoder.qkv_bias", "decoder.out_bias", "decoder.ffn_bias", of="bias", default=True),
    computed("sliding_window", "decoder.window", default=None),
    same("residual_dropout", "decoder.dropout", default=0.0),
    same("embedding_dropout", "decoder.embed_dropout", default=0.0),
    ignored("mlp_type", "norm_type"),
    constants=UNGATED,
    rules=_starcoder_rules,
    n_classes=4,
    tied=True,
    vocab_size=49_152,
    hidden_size=3072,
    intermediate_size=12_288,
    layers=30,
    n_heads=24,
    kv_heads=2,
    hidden_act="gelu_pytorch_tanh",
    eps=1e-5,
    eps_field="norm_epsilon",
    std=0.018042,
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
    n_heads=48,
    kv_heads=None,
    hidden_act="relu2",
    eps=1e-5,
    eps_field="norm_eps",
    std=0.0134,
    angles=rotary(max_length=4096, fraction=0.5),
)

# --- a part of each head (Bellagente et al. 2024) --------------------------------------------------------------------

STABLELM = llama_like(
    "stablelm",
    "StableLm",
    inherited("use_qkv_bias", "decoder.qkv_bias", of="bias", default=False),
    same("hidden_dropout", "decoder.dropout", default=0.0),
    parallel("one_norm", default=False),
    Only("qk_layernorm", False),
    constants={"decoder.norm": "layer", "decoder.norm_bias": True, "decoder.embed_dropout": 0.0},
    n_classes=4,
    vocab_size=50_304,
    hidden_size=2560,
    intermediate_size=6912,
    kv_heads=32,
    eps=1e-5,
    eps_field="layer_norm_eps",
    angles=rotary(max_length=4096, fraction=0.25),
)


# --- Phi (Li et al. 2023) and Phi-3 (Abdin et al. 2024) ------------------------------------------------------------


def _rules(_: ModelConfig) -> Sequence[Rule]:
    ours = "decoder.blocks.{i}"
    attention = {
        "q_proj": "q", "k_proj": "k", "v_proj": "v", "dense": "out", "q_layernorm": "q_norm", "k_layernorm": "k_norm"
    }  # fmt: skip
    return (
        rename("embed_tokens.weight", "decoder.embed.tokens.weight"),
        rename("layers.{i}.input_layernorm.{p}", f"{ours}.attn_norm.{{p}}"),
        *renames("layers.{i}.self_attn", f"{ours}.attn", attention),
        rename("layers.{i}.mlp.fc1.{p}", f"{ours}.ffn.up.{{p}}"),
        rename("layers.{i}.mlp.fc2.{p}", f"{ours}.ffn.down.{{p}}"),
        rename("final_layernorm.{p}", "decoder.final_norm.{p}"),
        ignore("rotary_emb.inv_freq", "layers.{i}.self_attn.rotary_emb.inv_freq"),
    )


def fused_rules(config: ModelConfig) -> Sequence[Rule]:
    """Queries, keys and values in one matrix; gate and up in another."""
    ours, stack = "decoder.blocks.{i}", config.output
    rows = [n * stack.head_width for n in (stack.n_heads, stack.kv_heads, stack.kv_heads)]
    return (
        rename("embed_tokens.weight", "decoder.embed.tokens.weight"),
        rename("layers.{i}.input_layernorm.{p}", f"{ours}.attn_norm.{{p}}"),
        fused("layers.{i}.self_attn.qkv_proj.{p}", [f"{ours}.attn.{side}.{{p}}" for side in "qkv"], rows=rows),
        rename("layers.{i}.self_attn.o_proj.{p}", f"{ours}.attn.out.{{p}}"),
        rename("layers.{i}.post_attention_layernorm.{p}", f"{ours}.ffn_norm.{{p}}"),
        gate_and_up(config),
        rename("layers.{i}.mlp.down_proj.{p}", f"{ours}.ffn.down.{{p}}"),
        rename("norm.{p}", "decoder.final_norm.{p}"),
    )


def gate_and_up(config: ModelConfig) -> Rule:
    """The gate above the up matrix."""
    ours = [f"decoder.blocks.{{i}}.ffn.{name}.{{p}}" for name in ("gate", "up")]
    return fused("layers.{i}.mlp.gate_up_proj.{p}", ours, rows=[config.output.d_ff] * 2)


PHI = Family(
    model_type="phi",
    constants={"decoder.input.kind": "tokens", "decoder.parallel": "one_norm"},
    fields=(
        *llama_sizes(
            vocab_size=51_200,
            hidden_size=2048,
            intermediate_size=8192,
            layers=24,
            kv_heads=None,
            hidden_act="gelu_new",
            eps=1e-5,
            eps_field="layer_norm_eps",
            angles=rotary(max_length=2048, fraction=0.5),
        ),
        same("resid_pdrop", "decoder.dropout", default=0.0),
        same("embd_pdrop", "decoder.embed_dropout", default=0.0),
        same("qk_layernorm", "decoder.qk_norm", default=False),
    ),
    rules=_rules,
    heads=(decoder_language("PhiForCausalLM", "model.", tied=False, bias=True), *llama_heads("Phi")[1:4]),
    modernize=modern,
)


def _modern(document: dict[str, Any]) -> dict[str, Any]:
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
    computed("original_max_position_embeddings", write=_original, default=4096, like=4096),
    same("resid_pdrop", "decoder.dropout", default=0.0),
    computed("sliding_window", "decoder.window", default=None),
    ignored("embd_pdrop"),
    constants={"decoder.embed_dropout": 0.0},
    rules=fused_rules,
    n_classes=4,
    modernize=_modern,
    vocab_size=32_064,
    hidden_size=3072,
    intermediate_size=8192,
    kv_heads=None,
    eps=1e-5,
    angles=rotary(max_length=4096, fraction=1.0, scalings=WITH_LONG),
)


# --- GLM-4 (GLM Team 2024 and 2025) --------------------------------------------------------------------------------


def rules(config: ModelConfig) -> Sequence[Rule]:
    """Llama's, with neighbours rotated and the gate above the up matrix."""
    stack = config.output
    assert isinstance(stack.positions, Rotary)
    turned = {f"decoder.blocks.{{i}}.attn.{side}.{{p}}" for side in "qk"}
    width, rotated = stack.head_width, stack.positions.rotated(stack.head_width)
    kept = [rule for rule in llama_rules(config) if not rule.theirs[0].endswith(("gate_proj.{p}", "up_proj.{p}"))]
    return [
        gate_and_up(config),
        *(paired(rule, 0, width=width, rotated=rotated) if turned & {*rule.ours} else rule for rule in kept),
    ]


def sandwich_rules(config: ModelConfig) -> Sequence[Rule]:
    """The same with norms after the branches."""
    norms = {"post_self_attn_layernorm": "attn_out_norm", "post_mlp_layernorm": "ffn_out_norm"}
    more = (rename(f"layers.{{i}}.{a}.{{p}}", f"decoder.blocks.{{i}}.{b}.{{p}}") for a, b in norms.items())
    return (*rules(config), *more)


FIELDS: tuple[FieldRule, ...] = (
    *llama_sizes(
        vocab_size=151_552,
        intermediate_size=13_696,
        layers=40,
        kv_heads=2,
        head_dim=128,
        eps=0.00000015625,
        angles=rotary(max_length=131_072, fraction=0.5),
    ),
    inherited("attention_bias", "decoder.qkv_bias", of="bias", default=True),
)


def _family(model_type: str, name: str, table: Any, **constants: Any) -> Family:
    return Family(
        model_type=model_type,
        constants=LLAMA_CONSTANTS | constants,
        fields=FIELDS,
        rules=table,
        heads=llama_heads(name)[:4],
        modernize=modern,
    )


GLM = _family("glm", "Glm", rules)
GLM4 = _family("glm4", "Glm4", sandwich_rules, **{"decoder.norm_place": "sandwich"})
