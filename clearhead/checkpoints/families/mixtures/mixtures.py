"""Decoders with experts: Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE, GLM-4.5, MiniMax-M2 and Granite."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from clearhead.checkpoints.weights.mapping import Rule, rename
from clearhead.config import ModelConfig
from clearhead.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from clearhead.checkpoints.families.angles import modern, rotary
from clearhead.checkpoints.families.decoders.llama import (
    BIASES,
    LLAMA_CONSTANTS,
    llama_heads,
    llama_like,
    llama_rules,
    llama_sizes,
    qwen_windows,
)
from clearhead.checkpoints.families.decoders.llama_kin import GRANITE
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.shared import MOST_LAYERS
from clearhead.checkpoints.weights.fields import (
    Alias,
    Field,
    FieldRule,
    Only,
    Values,
    computed,
    ignored,
    inherited,
    same,
)
from clearhead.checkpoints.weights.mapping import leave_out

OURS = "decoder.blocks.{{i}}.ffn.experts.{e}.{part}.{kind}"


def expert_rules(config: ModelConfig, *, at: str, maps: Mapping[str, str]) -> list[Rule]:
    """Each expert's matrices, as checkpoints have them, or all of them in the two that the reference library computes
    with: gate and up one below the other, and down.
    """
    n = number(config)
    return [
        *(
            rename(f"{at}.{{e}}.{a}.{{p}}", f"decoder.blocks.{{i}}.ffn.experts.{{e}}.{b}.{{p}}")
            for a, b in maps.items()
        ),
        stacked(f"{at}.gate_up_proj", n, "gate", "up"),
        stacked(f"{at}.down_proj", n, "down"),
    ]


def number(config: ModelConfig) -> int:
    """The number of experts."""
    assert config.decoder is not None
    return config.decoder.experts.n if config.decoder.experts is not None else 0


def stacked(theirs: str, n: int, *parts: str, kind: str = "weight") -> Rule:
    """Theirs is e (parts f) d, or e (parts f): the parts of an expert one below the other."""

    def load(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        whole = checked(tensors[0], n)
        if whole.shape[1] % len(parts):
            raise UserError(f"expected {len(parts)} equal parts, got shape {list(whole.shape)}")
        return [part for expert in whole for part in expert.chunk(len(parts))]

    def save(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        import torch

        return [torch.stack([torch.cat(own) for own in of_each(tensors, len(parts))])]

    return Rule((theirs,), places(n, parts, kind), load, save)


def checked(tensor: "Tensor", n: int) -> "Tensor":
    """Returns the tensor. Raises UserError unless its first axis counts the experts."""
    if tensor.ndim < 2 or len(tensor) != n:
        raise UserError(f"expected {n} experts, got shape {list(tensor.shape)}")
    return tensor


def places(n: int, parts: Sequence[str], kind: str) -> tuple[str, ...]:
    """Our names of these parts of the experts, expert after expert."""
    return tuple(OURS.format(e=e, part=part, kind=kind) for e in range(n) for part in parts)


def of_each(tensors: "Sequence[Tensor]", n_parts: int) -> "list[tuple[Tensor, ...]]":
    """The tensors of each expert."""
    return [tuple(tensors[i : i + n_parts]) for i in range(0, len(tensors), n_parts)]


# --- experts chosen by softmax -------------------------------------------------------------------------------------

# --- fields ----------------------------------------------------------------------------------------------------------


def balance(default: float = 0.001) -> tuple[Field, ...]:
    """The factor of the load-balancing loss, which counts only if the model returns its router's logits."""

    def read(factor: float, values: Values) -> float:
        return factor if values["output_router_logits"] else 0.0

    def returned(_: Any, ours: Values) -> bool:
        return ours["decoder"]["experts"]["balance"] > 0

    return (
        computed(
            "router_aux_loss_coef",
            "decoder.experts.balance",
            read=read,
            write=lambda factor, _: factor or default,
            default=default,
            like=default,
        ),
        computed("output_router_logits", write=returned, default=False, like=False),
    )


def choice(
    n: int, n_chosen: int, *, theirs: str = "num_experts", also: str = "num_local_experts"
) -> tuple[FieldRule, ...]:
    """How many experts there are, under either name, and how many a position goes through."""
    return (
        same(theirs, "decoder.experts.n", default=n),
        Alias(also, theirs),
        same("num_experts_per_tok", "decoder.experts.n_chosen", default=n_chosen),
    )


def _layers(dense: Sequence[int] | None, values: Values) -> list[int] | None:
    """The layers with experts: every `decoder_sparse_step`-th, but for those in `mlp_only_layers`."""
    n, every = values["num_hidden_layers"], values["decoder_sparse_step"]
    found = [i for i in range(min(n, MOST_LAYERS)) if i not in (dense or ()) and (i + 1) % every == 0]
    return None if len(found) == n else found


def _dense(layers: Sequence[int] | None, ours: Values) -> list[int]:
    return [] if layers is None else [i for i in range(ours["decoder"]["n_layers"]) if i not in layers]


SPARSE: tuple[Field, ...] = (
    computed("mlp_only_layers", "decoder.experts.layers", read=_layers, write=_dense, default=None),
    computed("decoder_sparse_step", write=lambda *_: 1, default=1, like=1),
)

# --- tensors ---------------------------------------------------------------------------------------------------------


def mixture_rules(
    maps: Mapping[str, str], *, at: str = "layers.{i}.mlp", shared: str = ""
) -> Callable[[ModelConfig], Sequence[Rule]]:
    """Llama's names, with experts `at` this place. `maps` are their names of an expert's matrices."""

    def table(config: ModelConfig) -> Sequence[Rule]:
        ours = "decoder.blocks.{i}.ffn"
        found = [*llama_rules(config), rename(f"{at}.gate.weight", f"{ours}.router.weight")]
        found += expert_rules(config, at=f"{at}.experts", maps=maps)
        if shared:
            found += [rename(f"{at}.{shared}.{a}.{{p}}", f"{ours}.shared.{b}.{{p}}") for a, b in maps.items()]
            found += [rename(f"{at}.{shared}_gate.{{p}}", f"{ours}.shared_gate.{{p}}")]
        return found

    return table


PROJECTIONS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
WS = {"w1": "gate", "w3": "up", "w2": "down"}

# --- families --------------------------------------------------------------------------------------------------------

MIXTRAL = llama_like(
    "mixtral",
    "Mixtral",
    computed("sliding_window", "decoder.window", default=None),
    *choice(8, 2, theirs="num_local_experts", also="num_experts"),
    *balance(),
    Only("router_jitter_noise", 0.0),
    constants={"decoder.experts.normalised": True},
    rules=mixture_rules(WS, at="layers.{i}.block_sparse_moe"),
    span_prefix="model.",
    intermediate_size=14_336,
    kv_heads=8,
    eps=1e-5,
    angles=rotary(max_length=131_072, theta=1_000_000.0),
)

of_qwen = partial(llama_sizes, vocab_size=151_936, hidden_size=2048, layers=24, max_length=32_768)

QWEN2_MOE = Family(
    model_type="qwen2_moe",
    constants=LLAMA_CONSTANTS | {"decoder.experts.shared_gate": True},
    fields=(
        *of_qwen(intermediate_size=5632, n_heads=16, kv_heads=16),
        inherited("qkv_bias", "decoder.qkv_bias", of="bias", default=True),
        *qwen_windows(lambda i, first: i % 2 == 0 and i < first),
        *choice(60, 4),
        *SPARSE,
        same("moe_intermediate_size", "decoder.experts.d_ff", default=1408),
        same("shared_expert_intermediate_size", "decoder.experts.shared", default=5632),
        same("norm_topk_prob", "decoder.experts.normalised", default=False),
        *balance(),
    ),
    rules=mixture_rules(PROJECTIONS, shared="shared_expert"),
    heads=llama_heads("Qwen2Moe", span_prefix="model."),
    modernize=modern,
)


def _window(said: int | None, values: Values) -> int | None:
    return said if values["use_sliding_window"] else None


QWEN3_MOE = Family(
    model_type="qwen3_moe",
    constants=LLAMA_CONSTANTS | {"decoder.qk_norm": True},
    fields=(
        *of_qwen(intermediate_size=6144, kv_heads=4),
        BIASES[0],
        computed("sliding_window", "decoder.window", read=_window, default=4096),
        computed(
            "use_sliding_window",
            write=lambda _, ours: ours["decoder"]["window"] is not None,
            default=False,
            like=False,
        ),
        *choice(128, 8),
        *SPARSE,
        same("moe_intermediate_size", "decoder.experts.d_ff", default=768),
        same("norm_topk_prob", "decoder.experts.normalised", default=False),
        *balance(),
    ),
    rules=mixture_rules(PROJECTIONS),
    heads=llama_heads("Qwen3Moe"),
    modernize=modern,
)

OLMOE = llama_like(
    "olmoe",
    "Olmoe",
    BIASES[0],
    *choice(64, 8),
    same("norm_topk_prob", "decoder.experts.normalised", default=False),
    *balance(0.01),
    Only("clip_qkv", None),
    constants={"decoder.qk_norm": True, "decoder.qk_norm_over": "heads"},
    rules=mixture_rules(PROJECTIONS),
    n_classes=2,
    vocab_size=50_304,
    hidden_size=2048,
    intermediate_size=2048,
    layers=16,
    n_heads=16,
    kv_heads=None,
    eps=1e-5,
    max_length=4096,
)


# --- experts chosen by sigmoids, and Granite's ---------------------------------------------------------------------

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
    table = mixture_rules(PROJECTIONS, shared="shared_experts")
    correction = rename("layers.{i}.mlp.gate.e_score_correction_bias", CORRECTION)
    return (more_layers(config), correction, *table(config))


GLM4_MOE = llama_like(
    "glm4_moe",
    "Glm4Moe",
    inherited("attention_bias", "decoder.qkv_bias", of="bias", default=False),
    same("use_qk_norm", "decoder.qk_norm", default=False),
    *choice(128, 8, theirs="n_routed_experts"),
    *sparse(),
    ignored("num_mtp_layers", "num_nextn_predict_layers"),
    constants=SIGMOID | {"decoder.experts.group_best": 2},
    rules=_glm_rules,
    n_classes=2,
    vocab_size=151_552,
    intermediate_size=10_944,
    layers=46,
    n_heads=96,
    kv_heads=8,
    eps=1e-5,
    angles=rotary(max_length=131_072, fraction=0.5),
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
    return (rename(f"{at}.e_score_correction_bias", CORRECTION), *mixture_rules(WS, at=at)(config))


MINIMAX_M2 = llama_like(
    "minimax_m2",
    "MiniMaxM2",
    *choice(256, 8, theirs="num_local_experts", also="num_experts"),
    Only("router_jitter_noise", 0.0),
    Only("output_router_logits", False),
    ignored("router_aux_loss_coef"),
    constants=SIGMOID | {"decoder.experts.normalised": True, "decoder.qk_norm": True, "decoder.qk_norm_over": "heads"},
    rules=_minimax_rules,
    n_classes=2,
    modernize=_by_width,
    vocab_size=200_064,
    hidden_size=3072,
    intermediate_size=1536,
    layers=62,
    n_heads=48,
    kv_heads=8,
    head_dim=128,
    angles=rotary(max_length=196_608, theta=5_000_000.0, fraction=1.0),
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
    constants=LLAMA_CONSTANTS | {"decoder.experts.normalised": True},
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
