"""Nemotron-H (NVIDIA 2025): a layer is a state space, attention, a feed-forward network or a mixture of experts."""

from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.decoders.llama import BIASES, llama_like
from clearhead.checkpoints.families.decoders.state_spaces import (
    BLOCK_TYPES,
    BLOCKS,
    INITIAL,
    LINEAR,
    MIXER,
    OLDER,
    experts,
    layer_numbers,
    mixer,
    mixer_rules,
)
from clearhead.checkpoints.families.mixtures.mixtures import CORRECTION
from clearhead.checkpoints.families.shared import ACTIVATIONS, FULL, decoder_language
from clearhead.checkpoints.weights.fields import Alias, ignored, named, only, same
from clearhead.checkpoints.weights.mapping import Rule, leave_out, modules, rename, renames
from clearhead.config import ModelConfig

KINDS = (LINEAR, FULL, "mlp", "moe")


def _nemotron_modern(document: dict[str, Any]) -> dict[str, Any]:
    """A name for each layer, in place of a letter for each."""
    pattern, older = (document.pop(name, None) for name in ("hybrid_override_pattern", "layer_types"))
    said: Any = document.get(BLOCK_TYPES) or older or pattern or [LINEAR, "moe", FULL, "mlp"]
    if not isinstance(said, Sequence):
        return document
    kinds = [OLDER.get(str(kind), kind) for kind in said]
    return document | {BLOCK_TYPES: kinds, "num_hidden_layers": len(kinds)}


def _nemotron_rules(config: ModelConfig) -> Sequence[Rule]:
    stack, at, ours = config.output, "layers.{i}.mixer", "decoder.blocks.{i}"
    maps = {"up_proj": "up", "down_proj": "down"}
    attention = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "out"}
    norms = ("attn_norm" if stack.mixes(i) else "ffn_norm" for i in range(stack.n_layers))
    return (
        leave_out("mtp.{a}.{b}.{c}", because="layers that predict further tokens"),
        *modules("decoder", "", {**BLOCKS, "embedding": "embed.tokens"}),
        *(rename(f"layers.{i}.norm.{{p}}", f"decoder.blocks.{i}.{norm}.{{p}}") for i, norm in enumerate(norms)),
        *renames(at, f"{ours}.attn", attention),
        *renames(f"{at}.experts.{{e}}", f"{ours}.ffn.experts.{{e}}", maps),
        *renames(f"{at}.shared_experts", f"{ours}.ffn.shared", maps),
        rename(f"{at}.gate.e_score_correction_bias", CORRECTION),
        *renames(at, f"{ours}.ffn", {**maps, "gate": "router"}),
        *mixer_rules(config, at),
    )


NEMOTRON_OTHERS = {
    "num_local_experts": "n_routed_experts",
    "mamba_n_groups": "n_groups",
    "mamba_d_conv": "conv_kernel",
    "mamba_conv_bias": "use_conv_bias",
    "mamba_dt_min": "time_step_min",
}
NEMOTRON_H = llama_like(
    "nemotron_h",
    "NemotronH",
    BIASES[1],
    *mixer(mamba_num_heads=128, mamba_head_dim=64, ssm_state_size=128, n_groups=8, conv_kernel=4, use_conv_bias=True),
    same("time_step_min", "decoder.mixer.least_step", default=0.001),
    layer_numbers(BLOCK_TYPES, "mixer.layers", (LINEAR,), KINDS),
    layer_numbers(BLOCK_TYPES, "mixing_layers", (LINEAR, FULL), KINDS),
    layer_numbers(BLOCK_TYPES, "ffn_layers", ("mlp", "moe"), KINDS),
    *experts(
        "n_routed_experts",
        8,
        {
            "num_experts_per_tok": ("n_chosen", 2),
            "moe_intermediate_size": ("d_ff", 7688),
            "moe_shared_expert_intermediate_size": ("shared", 7688),
            "routed_scaling_factor": ("scale", 1.0),
            "norm_topk_prob": ("normalised", True),
            "n_group": ("n_groups", 1),
            "topk_group": ("n_groups_chosen", 1),
        },
        scores="sigmoid",
        correction=True,
        group_best=2,
    ),
    named("mlp_hidden_act", "decoder.activation", names=ACTIVATIONS, default="relu2"),
    *only(use_bias=False, mamba_hidden_act="silu", moe_latent_size=None),
    *(Alias(other, of=name) for other, name in NEMOTRON_OTHERS.items()),
    INITIAL,
    ignored(
        "attention_bias",
        "num_logits_to_keep",
        "use_mamba_kernels",
        "mamba_ssm_cache_dtype",
        "mamba_proj_bias",
        "max_position_embeddings",
    ),
    ignored(
        "expand", "chunk_size", "residual_in_fp32", "hidden_dropout", "time_step_limit", "sliding_window", "rope_theta"
    ),
    ignored(
        "moe_shared_expert_overlap", "n_shared_experts", "mtp_*", "num_nextn_predict_layers", "output_router_logits"
    ),
    ignored("mamba_dt_*", "mamba_expand", "mamba_chunk_size", "partial_rotary_factor"),
    constants={**MIXER, "decoder.gated": False, "decoder.positions.kind": "none"},
    rules=_nemotron_rules,
    words=decoder_language("NemotronHForCausalLM", "backbone.", tied=False),
    n_classes=2,
    modernize=_nemotron_modern,
    leave_out=("hidden_act", "rope_parameters", "max_position_embeddings"),
    vocab_size=131_072,
    intermediate_size=21_504,
    num_key_value_heads=8,
    head_dim=128,
    layer_norm_epsilon=1e-5,
)
