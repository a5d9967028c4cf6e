"""Decoders with experts: Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE, GLM-4.5, MiniMax-M2 and Granite."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from clearhead.checkpoints.families.angles import modern, rotary
from clearhead.checkpoints.families.decoders.llama import (
    BIASES,
    USES_WINDOW,
    llama_like,
    llama_rules,
    qwen_windows,
    renamed,
)
from clearhead.checkpoints.families.decoders.llama_kin import GRANITE_FIELDS, GRANITE_WORDS, granite_like
from clearhead.checkpoints.families.family import Rules
from clearhead.checkpoints.families.shared import MOST_LAYERS, bias, decoder_language
from clearhead.checkpoints.weights.fields import (
    Alias,
    Field,
    FieldRules,
    Only,
    Values,
    computed,
    factor,
    ignored,
    only,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, leave_out, rename, renames
from clearhead.config import ModelConfig
from clearhead.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

# --- tensors of experts --------------------------------------------------------------------------------------------


def number(config: ModelConfig) -> int:
    """The number of experts."""
    assert config.decoder is not None
    return config.decoder.experts.n if config.decoder.experts is not None else 0


def stacked(
    theirs: str, n: int, *parts: str, kind: str = "weight", turned: bool = False, in_turns: bool = False
) -> Rule:
    """Theirs is e (parts f) d, or e (parts f): the parts of an expert one below the other.

    With `turned`, each matrix of theirs is stored transposed; with `in_turns`, the rows of the parts alternate.
    """

    def load(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        whole = checked(tensors[0], n)
        return apart(whole.mT if turned else whole, len(parts), in_turns=in_turns)

    def save(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        import torch

        each = [tensors[i : i + len(parts)] for i in range(0, len(tensors), len(parts))]
        whole = torch.stack([torch.stack([*own], 1 if in_turns else 0).flatten(0, 1) for own in each])
        return [whole.mT.contiguous() if turned else whole]

    return Rule((theirs,), places(n, parts, kind), load, save)


def apart(whole: "Tensor", n_parts: int, *, in_turns: bool = False) -> "list[Tensor]":
    """The parts of each expert, one expert after the other. Raises UserError if they are not equal."""
    if whole.shape[1] % n_parts:
        raise UserError(f"expected {n_parts} equal parts, got shape {list(whole.shape)}")
    if in_turns:
        return [expert[i::n_parts].contiguous() for expert in whole for i in range(n_parts)]
    return [part for expert in whole for part in expert.chunk(n_parts)]


def checked(tensor: "Tensor", n: int) -> "Tensor":
    """Returns the tensor. Raises UserError unless its first axis counts the experts."""
    if tensor.ndim < 2 or len(tensor) != n:
        raise UserError(f"expected {n} experts, got shape {list(tensor.shape)}")
    return tensor


def places(n: int, parts: Sequence[str], kind: str) -> tuple[str, ...]:
    """Our names of these parts of the experts, expert after expert."""
    return tuple(f"decoder.blocks.{{i}}.ffn.experts.{e}.{part}.{kind}" for e in range(n) for part in parts)


PROJECTIONS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
WS = {"w1": "gate", "w3": "up", "w2": "down"}
CORRECTION = "decoder.blocks.{i}.ffn.router.correction"


def mixture_rules(
    maps: Mapping[str, str],
    *,
    at: str = "layers.{i}.mlp",
    shared: str = "",
    correction: str = "",
    rest: Rules = llama_rules,
) -> Rules:
    """Llama's names, or those of `rest`, with experts `at` this place.

    `maps` are the names of an expert's matrices, as checkpoints have them. The reference library can write all of
    them in the two tensors that it computes with. `shared` names the shared expert, and `correction` the router's.
    """

    def table(config: ModelConfig) -> Sequence[Rule]:
        n, ours = number(config), "decoder.blocks.{i}.ffn"
        names = {"gate": "router", f"{shared}_gate": "shared_gate"} if shared else {"gate": "router"}
        rules = [
            *rest(config),
            *renames(f"{at}.experts.{{e}}", f"{ours}.experts.{{e}}", maps),
            stacked(f"{at}.experts.gate_up_proj", n, "gate", "up"),
            stacked(f"{at}.experts.down_proj", n, "down"),
        ]
        if shared:
            rules += renames(f"{at}.{shared}", f"{ours}.shared", maps)
        if correction:
            rules = [more_layers(config), rename(f"{at}.{correction}", CORRECTION), *rules]
        return (*rules, *renames(at, ours, names))

    return table


def more_layers(config: ModelConfig) -> Rule:
    """Layers after the last that predict further tokens, which only some programs for inference use."""
    return further(f"layers.{config.output.n_layers}")


def further(at: str) -> Rule:
    """Leaves out the layers at this place, which predict further tokens."""
    deep = (".".join(f"{{{letter}}}" for letter in "abcdef"[:n]) for n in range(1, 7))
    return leave_out(*(f"{at}.{names}" for names in deep), because="a layer that predicts further tokens")


# --- fields --------------------------------------------------------------------------------------------------------


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
        ),
        computed("output_router_logits", write=returned, default=False),
    )


def choice(n: int, n_chosen: int, *, theirs: str = "num_experts", also: str = "num_local_experts") -> FieldRules:
    """How many experts there are, under either name, and how many a position goes through."""
    return (
        same(theirs, "decoder.experts.n", default=n),
        Alias(also, theirs),
        same("num_experts_per_tok", "decoder.experts.n_chosen", default=n_chosen),
    )


LOCAL_EXPERTS = {"theirs": "num_local_experts", "also": "num_experts"}


def _layers(dense: Sequence[int] | None, values: Values) -> list[int] | None:
    """The layers with experts: every `decoder_sparse_step`-th, but for those in `mlp_only_layers`."""
    n, every = values["num_hidden_layers"], values["decoder_sparse_step"]
    found = [i for i in range(min(n, MOST_LAYERS)) if i not in (dense or ()) and (i + 1) % every == 0]
    return None if len(found) == n else found


def _dense(layers: Sequence[int] | None, ours: Values) -> list[int]:
    return [] if layers is None else [i for i in range(ours["decoder"]["n_layers"]) if i not in layers]


def normalised(default: bool = False) -> Field:
    """The field that says whether the weights of the chosen experts sum to 1."""
    return same("norm_topk_prob", "decoder.experts.normalised", default=default)


def expert_width(default: int) -> Field:
    """The width of an expert."""
    return same("moe_intermediate_size", "decoder.experts.d_ff", default=default)


SPARSE: tuple[Field, ...] = (
    computed("mlp_only_layers", "decoder.experts.layers", read=_layers, write=_dense, default=None),
    computed("decoder_sparse_step", write=lambda *_: 1, default=1),
    normalised(),
    *balance(),
)

# --- experts chosen by softmax -------------------------------------------------------------------------------------

MIXTRAL = llama_like(
    "mixtral",
    "Mixtral",
    computed("sliding_window", "decoder.window", default=None),
    *choice(8, 2, **LOCAL_EXPERTS),
    *balance(),
    Only("router_jitter_noise", 0.0),
    constants={"decoder.experts.normalised": True},
    rules=mixture_rules(WS, at="layers.{i}.block_sparse_moe"),
    span_prefix="model.",
    intermediate_size=14_336,
    num_key_value_heads=8,
    rms_norm_eps=1e-5,
    angles=rotary(max_length=131_072, theta=1_000_000.0),
)

qwen_like = partial(llama_like, vocab_size=151_936, hidden_size=2048, num_hidden_layers=24, max_length=32_768)

QWEN2_MOE = qwen_like(
    "qwen2_moe",
    "Qwen2Moe",
    bias("qkv_bias", "qkv", default=True),
    *qwen_windows(lambda i, first: i % 2 == 0 and i < first),
    *choice(60, 4),
    *SPARSE,
    expert_width(1408),
    same("shared_expert_intermediate_size", "decoder.experts.shared", default=5632),
    constants={"decoder.experts.shared_gate": True},
    rules=mixture_rules(PROJECTIONS, shared="shared_expert"),
    span_prefix="model.",
    intermediate_size=5632,
    num_attention_heads=16,
    num_key_value_heads=16,
)


def _window(said: int | None, values: Values) -> int | None:
    return said if values["use_sliding_window"] else None


QWEN3_MOE = qwen_like(
    "qwen3_moe",
    "Qwen3Moe",
    BIASES[0],
    computed("sliding_window", "decoder.window", read=_window, default=4096, null=True),
    USES_WINDOW,
    *choice(128, 8),
    *SPARSE,
    expert_width(768),
    constants={"decoder.qk_norm": True},
    rules=mixture_rules(PROJECTIONS),
    intermediate_size=6144,
    num_key_value_heads=4,
)

OLMOE = llama_like(
    "olmoe",
    "Olmoe",
    BIASES[0],
    *choice(64, 8),
    normalised(),
    *balance(0.01),
    same("clip_qkv", "decoder.clip_qkv", default=None),
    constants={"decoder.qk_norm": True, "decoder.qk_norm_over": "heads"},
    rules=mixture_rules(PROJECTIONS),
    n_classes=2,
    vocab_size=50_304,
    hidden_size=2048,
    intermediate_size=2048,
    num_hidden_layers=16,
    num_attention_heads=16,
    rms_norm_eps=1e-5,
    max_length=4096,
)


# --- experts chosen by sigmoids ------------------------------------------------------------------------------------

SIGMOID = {"decoder.experts.scores": "sigmoid", "decoder.experts.correction": True}


def _after(first: int, values: Values) -> list[int] | None:
    """The layers with experts: all but the first ones."""
    return [*range(first, min(values["num_hidden_layers"], MOST_LAYERS))] if first else None


def _first(layers: Sequence[int] | None, ours: Values) -> int:
    if layers is None:
        return 0
    if [*layers] != [*range(layers[0], ours["decoder"]["n_layers"])]:
        raise ValueError(layers)
    return layers[0]


def _n_shared(width: int | None, ours: Values) -> int:
    experts = ours["decoder"]["experts"]
    n, rest = divmod(width or 0, experts["d_ff"] or ours["decoder"]["d_ff"])
    if rest:
        raise ValueError(width)
    return n


def dense_first(theirs: str, default: int) -> Field:
    """The number of layers before those with experts."""
    return computed(theirs, "decoder.experts.layers", read=_after, write=_first, default=default)


def sparse(
    *, first: int = 1, d_ff: int = 1408, shared: int = 1, scale: float = 1.0, groups: int = 1, groups_chosen: int = 1
) -> tuple[Field, ...]:
    """The layers with experts, their widths, and the groups and shares of the chosen ones, with a family's defaults."""
    return (
        dense_first("first_k_dense_replace", first),
        expert_width(d_ff),
        computed(
            "n_shared_experts",
            "decoder.experts.shared",
            read=lambda n, values: n * values["moe_intermediate_size"] or None,
            write=_n_shared,
            default=shared,
        ),
        factor("routed_scaling_factor", "decoder.experts.scale", default=scale),
        same("n_group", "decoder.experts.n_groups", default=groups),
        same("topk_group", "decoder.experts.n_groups_chosen", default=groups_chosen),
        normalised(True),
    )


GLM4_MOE = llama_like(
    "glm4_moe",
    "Glm4Moe",
    bias("attention_bias", "qkv"),
    same("use_qk_norm", "decoder.qk_norm", default=False),
    *choice(128, 8, theirs="n_routed_experts"),
    *sparse(),
    ignored("num_mtp_layers", "num_nextn_predict_layers"),
    constants=SIGMOID | {"decoder.experts.group_best": 2},
    rules=mixture_rules(PROJECTIONS, shared="shared_experts", correction="gate.e_score_correction_bias"),
    n_classes=2,
    vocab_size=151_552,
    intermediate_size=10_944,
    num_hidden_layers=46,
    num_attention_heads=96,
    num_key_value_heads=8,
    rms_norm_eps=1e-5,
    angles=rotary(max_length=131_072, fraction=0.5),
)


def _by_width(document: dict[str, Any]) -> dict[str, Any]:
    """The share of a head that rotates, which older configs give as a width."""
    width = document.pop("rotary_dim", None)
    if width is not None:
        document.setdefault("partial_rotary_factor", width / (document.get("head_dim") or 128))
    return modern(document)


MINIMAX_M2 = llama_like(
    "minimax_m2",
    "MiniMaxM2",
    *choice(256, 8, **LOCAL_EXPERTS),
    *only(router_jitter_noise=0.0, output_router_logits=False),
    ignored("router_aux_loss_coef"),
    constants=SIGMOID | {"decoder.experts.normalised": True, "decoder.qk_norm": True, "decoder.qk_norm_over": "heads"},
    rules=mixture_rules(WS, at="layers.{i}.block_sparse_moe", correction="e_score_correction_bias"),
    n_classes=2,
    modernize=_by_width,
    vocab_size=200_064,
    hidden_size=3072,
    intermediate_size=1536,
    num_hidden_layers=62,
    num_attention_heads=48,
    num_key_value_heads=8,
    head_dim=128,
    angles=rotary(max_length=196_608, theta=5_000_000.0, fraction=1.0),
)

# --- Granite ---------------------------------------------------------------------------------------------------------


def _granite_rules(config: ModelConfig) -> Sequence[Rule]:
    at, n = "block_sparse_moe", number(config)
    return (
        *renamed({f"{at}.router.layer": "ffn.router"}, but=("ffn.",)),
        stacked(f"layers.{{i}}.{at}.input_linear.weight", n, "gate", "up"),
        stacked(f"layers.{{i}}.{at}.output_linear.weight", n, "down"),
    )


GRANITE_MOE = granite_like(
    "granitemoe",
    "GraniteMoe",
    BIASES[0],
    *GRANITE_FIELDS,
    *choice(8, 2, **LOCAL_EXPERTS),
    *balance(),
    constants={"decoder.experts.normalised": True},
    rules=_granite_rules,
    words=decoder_language("GraniteMoeForCausalLM", "model.", GRANITE_WORDS, tied=False),
)
