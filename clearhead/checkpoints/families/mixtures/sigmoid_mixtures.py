"""Further relatives with experts: GLM-4.5 (GLM Team 2025) and MiniMax-M2 (2025), whose scores are sigmoids with a
correction for the choice, and Granite's (IBM 2024).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families.decoders.llama import BIASES, CONSTANTS, heads, sizes
from clearhead.checkpoints.families.decoders.llama import rules as llama_rules
from clearhead.checkpoints.families.decoders.llama_kin import GRANITE
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.mixtures.expert_rules import number, stacked
from clearhead.checkpoints.families.mixtures.mixtures import PROJECTIONS, WS, balance, choice, rules
from clearhead.checkpoints.families.rotary import modern, rotary
from clearhead.checkpoints.families.shared import MOST_LAYERS
from clearhead.checkpoints.weights.fields import Field, Only, Values, computed, ignored, inherited, same
from clearhead.checkpoints.weights.mapping import Rule, leave_out, rename
from clearhead.config import ModelConfig

SIGMOID = {"decoder.experts.scores": "sigmoid", "decoder.experts.correction": True}
CORRECTION = "decoder.blocks.{i}.ffn.router.correction"

# --- GLM-4.5 ---------------------------------------------------------------------------------------------------------


def _after(first: int, values: Values) -> list[int] | None:
    """The layers with experts: all but the first ones."""
    return [*range(first, min(values["num_hidden_layers"], MOST_LAYERS))] if first else None


def _first(layers: Sequence[int] | None, ours: Values) -> int:
    if layers is None:
        return 0
    if [*layers] != [*range(layers[0], ours["decoder"]["n_layers"])]:
        raise ValueError(layers)
    return layers[0]


def _shared(n: int, values: Values) -> int | None:
    return n * values["moe_intermediate_size"] or None


def _n_shared(width: int | None, ours: Values) -> int:
    experts = ours["decoder"]["experts"]
    n, rest = divmod(width or 0, experts["d_ff"] or ours["decoder"]["d_ff"])
    if rest:
        raise ValueError(width)
    return n


def sparse(
    *, first: int = 1, d_ff: int = 1408, shared: int = 1, scale: float = 1.0, groups: int = 1, groups_chosen: int = 1
) -> tuple[Field, ...]:
    """The layers with experts, their widths, and the groups and shares of the chosen ones, with a family's defaults."""
    return (
        computed("first_k_dense_replace", "decoder.experts.layers", read=_after, write=_first, default=first, like=1),
        same("moe_intermediate_size", "decoder.experts.d_ff", default=d_ff),
        computed("n_shared_experts", "decoder.experts.shared", read=_shared, write=_n_shared, default=shared, like=1),
        computed(
            "routed_scaling_factor",
            "decoder.experts.scale",
            read=lambda factor, _: None if factor == 1.0 else factor,
            write=lambda factor, _: factor or 1.0,
            default=scale,
            like=1.0,
        ),
        same("n_group", "decoder.experts.n_groups", default=groups),
        same("topk_group", "decoder.experts.n_groups_chosen", default=groups_chosen),
        same("norm_topk_prob", "decoder.experts.normalised", default=True),
    )


def more_layers(config: ModelConfig) -> Rule:
    """Layers that predict further tokens, which only some programs for inference use."""
    deep = (".".join(f"{{{letter}}}" for letter in "abcdef"[:n]) for n in range(1, 7))
    at = f"layers.{config.output.n_layers}"
    return leave_out(*(f"{at}.{names}" for names in deep), because="a layer that predicts further tokens")


def _glm_rules(config: ModelConfig) -> Sequence[Rule]:
    table = rules(PROJECTIONS, shared="shared_experts")
    correction = rename("layers.{i}.mlp.gate.e_score_correction_bias", CORRECTION)
    return (more_layers(config), correction, *table(config))


GLM4_MOE = Family(
    model_type="glm4_moe",
    constants=CONSTANTS | SIGMOID | {"decoder.experts.group_best": 2},
    fields=(
        *sizes(
            vocab_size=151_552,
            intermediate_size=10_944,
            layers=46,
            n_heads=96,
            kv_heads=8,
            eps=1e-5,
            angles=rotary(max_length=131_072, fraction=0.5),
        ),
        inherited("attention_bias", "decoder.qkv_bias", of="bias", default=False),
        same("use_qk_norm", "decoder.qk_norm", default=False),
        *choice(128, 8, theirs="n_routed_experts"),
        *sparse(),
        ignored("num_mtp_layers", "num_nextn_predict_layers"),
    ),
    rules=_glm_rules,
    heads=heads("Glm4Moe")[:2],
    modernize=modern,
)

# --- MiniMax-M2 ------------------------------------------------------------------------------------------------------


def _by_width(document: dict[str, Any]) -> dict[str, Any]:
    """The share of a head that rotates, which older configs give as a width."""
    width = document.pop("rotary_dim", None)
    if width is not None:
        document.setdefault("partial_rotary_factor", width / (document.get("head_dim") or 128))
    return modern(document)


def _minimax_rules(config: ModelConfig) -> Sequence[Rule]:
    at = "layers.{i}.block_sparse_moe"
    return (rename(f"{at}.e_score_correction_bias", CORRECTION), *rules(WS, at=at)(config))


MINIMAX_M2 = Family(
    model_type="minimax_m2",
    constants=CONSTANTS
    | SIGMOID
    | {"decoder.experts.normalised": True, "decoder.qk_norm": True, "decoder.qk_norm_over": "heads"},
    fields=(
        *sizes(
            vocab_size=200_064,
            hidden_size=3072,
            intermediate_size=1536,
            layers=62,
            n_heads=48,
            kv_heads=8,
            head_dim=128,
            angles=rotary(max_length=196_608, theta=5_000_000.0, fraction=1.0),
        ),
        *choice(256, 8, theirs="num_local_experts", also="num_experts"),
        Only("router_jitter_noise", 0.0),
        # Its loss is of other scores than those of the choice.
        Only("output_router_logits", False),
        ignored("router_aux_loss_coef"),
    ),
    rules=_minimax_rules,
    heads=heads("MiniMaxM2")[:2],
    modernize=_by_width,
)

# --- Granite ---------------------------------------------------------------------------------------------------------


def _granite_rules(config: ModelConfig) -> Sequence[Rule]:
    at, n = "layers.{i}.block_sparse_moe", number(config)
    return (
        *(rule for rule in llama_rules(config) if ".mlp." not in rule.theirs[0]),
        rename(f"{at}.router.layer.weight", "decoder.blocks.{i}.ffn.router.weight"),
        stacked(f"{at}.input_linear.weight", n, "gate", "up"),
        stacked(f"{at}.output_linear.weight", n, "down"),
    )


GRANITE_MOE = Family(
    model_type="granitemoe",
    constants=CONSTANTS | {"decoder.experts.normalised": True},
    fields=(
        *(field for field in GRANITE.fields if field is not BIASES[1]),
        *choice(8, 2, theirs="num_local_experts", also="num_experts"),
        *balance(),
    ),
    rules=_granite_rules,
    heads=tuple(
        replace(head, architecture=head.architecture.replace("Granite", "GraniteMoe")) for head in GRANITE.heads
    ),
    modernize=modern,
)
