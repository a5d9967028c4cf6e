"""The configurations of decoders with latent attention."""

from typing import Any

from tests.parity.cases.decoders import BASE, TIES, YARN, Changes, family
from tests.parity.cases.mixtures import CHOICE_OF_NONE
from tests.parity.cases.mixtures import SIZES as SIZES_AND_ACTS
from tests.parity.harness import Case

NO_TIES: Changes = {"tied": TIES["tied"]}
WHOLE = {**BASE, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "num_key_value_heads": 3}
PARTS: Changes = {
    "wide-values": {"v_head_dim": 19},
    "equal-values": {"v_head_dim": 14},
    "one-value": {"v_head_dim": 1},
    "mostly-turned": {"qk_rope_head_dim": 10, "qk_nope_head_dim": 2},
    "no-query-rank": {"q_lora_rank": None},
    "one-rank": {"kv_lora_rank": 2, "q_lora_rank": 1},
    "wide-rank": {"kv_lora_rank": 40, "q_lora_rank": 33},
    "eps": {"rms_norm_eps": 1e-3},
    "bias": {"attention_bias": True},
    "bias-no-query-rank": {"attention_bias": True, "q_lora_rank": None},
    "one-head": {"num_attention_heads": 1, "num_key_value_heads": 1},
    "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "linear": {"rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 100.0}},
    "yarn": {"rope_parameters": YARN},
    "yarn-scaled": {"rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
    "yarn-scaled-twice": {"rope_parameters": {**YARN, "mscale": 0.707, "mscale_all_dim": 1.3, "beta_fast": 4.0}},
    "yarn-scaled-alone": {"rope_parameters": {**YARN, "mscale_all_dim": 0.7}},
    "older-angles": {"rope_theta": 300.0, "rope_scaling": {**YARN, "type": "yarn", "mscale_all_dim": 0.5}},
}


def latent(**fields: Any) -> dict[str, Any]:
    return {
        **WHOLE,
        "q_lora_rank": 11,
        "kv_lora_rank": 8,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 10,
        "v_head_dim": 5,
        **fields,
    }


def experts(**fields: Any) -> dict[str, Any]:
    return latent(**{"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, **fields})


SIZES: Changes = {**SIZES_AND_ACTS, "one-layer": {"num_hidden_layers": 1, "first_k_dense_replace": 0}}
SPARSE: Changes = {
    "two-dense": {"first_k_dense_replace": 2, "num_hidden_layers": 4},
    "all-sparse": {"first_k_dense_replace": 0},
    "scaled": {"routed_scaling_factor": 1.7},
    "two-shared": {"n_shared_experts": 2},
    "many": {"n_routed_experts": 9, "num_experts_per_tok": 3},
}
GROUPED: Changes = {
    "groups": {"n_routed_experts": 8, "n_group": 4, "topk_group": 2},
    "one-group-of-two": {"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "routed_scaling_factor": 1.7},
    "not-normalised": {"norm_topk_prob": False},
}

DEEPSEEK_V3 = family(
    "deepseek_v3", "DeepseekV3ForCausalLM",
    experts(first_k_dense_replace=1, n_group=1, topk_group=1, n_routed_experts=5),
    SIZES, CHOICE_OF_NONE, NO_TIES, PARTS, SPARSE, GROUPED,
)  # fmt: skip
DEEPSEEK_V2 = family(
    "deepseek_v2", "DeepseekV2ForCausalLM", experts(first_k_dense_replace=1),
    SIZES, CHOICE_OF_NONE, NO_TIES, PARTS, SPARSE,
    {
        "groups": {"topk_method": "group_limited_greedy", "n_routed_experts": 8, "n_group": 4, "topk_group": 2},
        "named-groups": {"n_routed_experts": 8, "n_group": 4, "topk_group": 2},
        "normalised": {"norm_topk_prob": True},
    },
    heads="bare class",
)  # fmt: skip
GLM4_MOE_LITE = family(
    "glm4_moe_lite", "Glm4MoeLiteForCausalLM", experts(mlp_layer_types=["dense", "sparse"]),
    {name: change for name, change in SIZES_AND_ACTS.items() if "num_hidden_layers" not in change},
    CHOICE_OF_NONE, NO_TIES, PARTS, GROUPED,
    {
        "one-layer": {"num_hidden_layers": 1, "mlp_layer_types": ["sparse"]},
        "deep": {"num_hidden_layers": 4, "mlp_layer_types": None},
        "dense-between": {"num_hidden_layers": 3, "mlp_layer_types": ["sparse", "dense", "sparse"]},
        "two-shared": {"n_shared_experts": 2},
    },
    heads="bare",
)  # fmt: skip
# Reading its own file, the reference sets the row of the padding token to 0.
YOUTU = family("youtu", "YoutuForCausalLM", latent(pad_token_id=None), SIZES_AND_ACTS, NO_TIES, PARTS, heads="bare")
MINICPM3 = family(
    "minicpm3", "MiniCPM3ForCausalLM", latent(), SIZES_AND_ACTS, NO_TIES, PARTS,
    {
        "values-by-heads": {"v_head_dim": None},
        "no-factors": {"scale_emb": 1, "scale_depth": None, "dim_model_base": None},
        "factors": {"scale_emb": 7, "scale_depth": 2.3, "dim_model_base": 10},
        "longrope": {
            "rope_parameters": {
                "rope_type": "longrope", "rope_theta": 100.0, "original_max_position_embeddings": 16,
                "short_factor": [1.1, 1.5], "long_factor": [2.0, 4.0],
            }
        },
    },
    heads="bare class",
)  # fmt: skip

CASES: list[Case] = [*DEEPSEEK_V3, *DEEPSEEK_V2, *GLM4_MOE_LITE, *YOUTU, *MINICPM3]
